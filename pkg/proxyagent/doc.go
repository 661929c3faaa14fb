// Package proxyagent is the agent on a managed cluster. It dials the hub, so
// that the hub can reach a cluster that accepts no connection.
//
// # Data flow
//
// The agent keeps one gRPC stream to each proxy server, with konnectivity's own
// agent package. A dial that comes down a stream is looked at by the destination
// policy (package policy) before konnectivity sees it: an allowed one carries
// the address to dial from then on, a denied one is answered at once and goes no
// further. There are two destinations: the cluster's kube-apiserver, for clients
// that speak TLS to it end to end, and the agent's own handler (package
// apihandler), for requests of the proxy API.
//
// Beside each stream to a proxy server that speaks carriers, the agent keeps
// carriers ready to that very server (package carrier/pool): a server says its name
// on a new carrier, and one that led to another server behind the load balancer
// is kept for that one. Connections on carriers are dialed and relayed here and
// do not share anything. Those to the handler are not dialed: it serves on the
// carrier itself (connListener), and its port is for connections from streams.
//
// Without any server the agent dials after a pause between nothing and a limit
// that doubles from --sync-interval to --sync-interval-cap, so that a thousand
// agents that lose a server do not come back as one; what replaces a carrier
// that was cut does too, unless the server asks for it. An agent that has a
// server has time to find a further one (search.go): it dials within 90 s of
// the event that all agents notice, a server that drains, dies or is announced,
// and so again until it has found it; after ten attempts the window doubles up to
// 5 minutes, until a server says that another one has come. A fleet of 1,000
// costs the servers that stay less than 50 handshakes a second each. Half of it
// has found a new server after 1 to 2 minutes, 99 of 100 have after 6 (two
// servers) to 12 minutes (three); until then the servers reach each other's
// agents. If all servers of an agent drain, it looks for another one within half
// of the time that they say they wait, and tells them when it has one.
// If a server lost the stream unnoticed, it refuses carriers with NoAgent and the
// agent reconnects. While DNS does not answer, the address of last time is dialed
// (package dial).
//
// # Who authenticates whom
//
// Towards the proxy server both sides show certificates: the server's is checked
// against the hub CA and the host dialed, the agent's is this cluster's alone.
// Files are read again when they change, and each new connection uses what they
// hold then. When they change, the agent dials a carrier to each server: it shows
// the new certificate, and a secret of this process lets the server count it for the
// agent's older connections, which end otherwise when their CA is dropped or their
// certificate expires (proxyserver's "What is taken away"). HTTPS_PROXY and NO_PROXY are honoured.
//
// # Health
//
// The agent is live as long as it runs, and ready while it has a tunnel. It
// renews the addon's Lease while it has one, and only then: that is what makes
// ManagedClusterAddOn Available mean something. A hub that is away makes it not
// ready; it is no reason to restart it. While most of a memory limit is used, it
// refuses dials as Overloaded (package memlimit).
//
// # Drain
//
// On SIGTERM the agent tells the servers, which prefer other agents from then
// on, and goes on serving until its connections have ended and the minimum has
// passed, or until the drain timeout. The proxy API keeps connections to the
// handler; answers tell it that the next request should take another one,
// also when it is a proxy server on the way that drains (goaway.go). One without
// a request holds no drain.
//
// # Port-forward mode
//
// Where the hub has no address that the agent could dial but its kube-apiserver,
// the agent dials itself: a local listener carries every connection through a
// port-forward to a proxy server's pod, with a hub credential that allows that as
// long as the cluster has the addon. TLS to the proxy server is the same inside.
//
// # Plain konnectivity agent
//
// Without --cluster-name this is konnectivity's agent: it dials whatever it is
// asked for, has no handler and renews no Lease. The chart always sets the name.
//
// # Files
//
//   - agent.go: the process, from New to Run. options.go: its flags. drain.go: its end.
//   - session.go: the stream to a proxy server, where the destination policy decides.
//   - servers.go, search.go: the proxy servers that the agent is connected to, and when
//     it looks for more. servercounter.go: how many there are.
//   - carrierdialer.go: dials carriers, and serves what they ask for. httpsproxy.go: the
//     proxy on the way to the hub.
//   - connlistener.go: connections of carriers for the handler. goaway.go: asks the proxy
//     API to move to other connections.
//   - access.go, exposed.go: what the handler asks about identities and Services.
//   - credentials.go, owncertificate.go, handshakes.go: TLS to the proxy servers.
//   - lease.go, admin.go, metrics.go: what OCM and operators see.
//   - portforward.go: port-forward mode.
package proxyagent
