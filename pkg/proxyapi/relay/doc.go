// Package relay sends a request to the agent of one cluster and the answer back: one
// ReverseProxy for requests, and joined connections for CONNECT. Package agentclient says what
// is repeated when a connection to an agent breaks.
//
// Documents of clusters and Services are answered with a policy that sandboxes them, unless the
// cluster has a host of its own: they would share an origin with those of other clusters, and with
// the page. Their cookies are kept below the path of the cluster or Service (cookies.go).
//
// An answer that its client does not read is waited for, up to the limits of package scope.
// When the process begins to drain, a watch ends as if its time were up: between two events
// cleanly, within one or where that is not known with an error, and by WebSocket with a close
// message behind a whole frame.
//
// # Files
//
//	connect.go    CONNECT: two connections joined
//	relay.go      requests, redirects, the sandbox of documents
//	cookies.go    keeps cookies of clusters and Services below their paths
//	transport.go  hands a request to package agentclient, with its user
//	watch.go      the body of a watch, which ends when the process drains
//	pace.go       answers that their client does not read
//	latencies.go  how long clusters take to answer, and how often they did
package relay
