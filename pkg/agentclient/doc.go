// Package agentclient sends HTTP requests through the tunnel to the agents of managed
// clusters, as a user whom the caller names:
//
//	resp, err := client.RoundTrip(r, agentclient.Target{Cluster: "cluster1"}, agentclient.Identity{User: jane})
//
// It does not ask whether the user may do that: package hubaccess does.
//
// # Who authenticates whom
//
// The agent is verified, inside the tunnel, with the agent CA and under the host name
// of that one cluster, and must be the agent of the ManagedCluster that has the name
// now (Admission). It verifies our certificate, and its role. It believes front-proxy
// headers (X-Remote-*) from us, so SetHeaders is the one function that sets them. It
// first deletes what the request has of that name, in any letters, with hyphens or
// underscores. With a user it also deletes Authorization, Impersonate-* and tokens in
// WebSocket protocols: a credential of the hub never leaves it. A request with neither
// a user nor PassThrough is an error; there is no third state.
//
// # Transport pools
//
// Each cluster has a transport pool that never connects to another one: up to
// SharedConns HTTP/2 connections for requests and as many as needed for watches,
// HTTP/1.1 for upgrades, one connection each, and up to ReadConns HTTP/1.1 connections
// for reads (package httprelay says why). A read that finds none of these free uses
// HTTP/2, as do the first requests. A view's questions to all of its clusters about discovery
// share whatever connection there is: thousands of clusters would be dialed several times
// each. All users share the pool: what a user may do is decided per request, by what is in
// it. An HTTP/1.1 connection is used again only after an answer that was read to its end,
// when nothing came after it.
//
// An agent that drains, or that knows that the proxy server on the way does, says so in
// an answer. New requests then take new connections, and the old ones end with their
// requests, so that a drain cuts off only requests that last until its end.
//
// # What fails how
//
// StatusOf maps every error to an HTTP status and a message that says what to do.
//
// A cluster without an agent is expected back for AwayAfter if its agent was there just
// now: a connection to it was open, or the proxy servers were gone themselves. Any other is
// away (IsAway). That there was no connection lately is no sign of an agent, so a cluster that nobody
// uses is away as soon as its agent restarts.
//
// A pooled connection that is found dead before a request was sent on it is replaced
// without an error. A request that was sent is not repeated, except a read (GET and
// HEAD, no watch, no stream) that failed within 15 s before anything of its answer
// arrived: if it failed on a connection for reads, it is sent by HTTP/2, and if it
// failed there, once more on a new connection. A read that is only slow is sent once: its
// connection is given up for evidence alone (package httprelay, "Silence"), which is that of
// its own transport or that of the cluster's other connections.
//
// When a cluster is not served any more, Evict closes all connections to its agent,
// with the requests on them. When an agent's certificate becomes one that a handshake
// would not accept, Recheck moves new requests to new connections. Requests that are on
// the old ones go on for as long as the proxy server lets the agent's carriers, which
// decides the same and knows whether the agent has renewed its certificate.
//
// # Files
//
//	client.go    Client, and connections in place of requests
//	pool.go      the transports for one cluster, and certificates of agents that are connected
//	conn.go      one connection to an agent, from the dial to its end
//	errors.go    what an error means to a client
//	headers.go   front-proxy headers: who a request is from
//	presence.go  whether an agent that is not there is expected back
//	options.go   what a caller says of a request, and of all
package agentclient
