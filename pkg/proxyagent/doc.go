// Package proxyagent is the agent on a managed cluster. It dials the hub, which can
// then reach a cluster that accepts no connections.
//
// # Data flow
//
// The agent keeps a control session with each proxy server. The session runs on a carrier
// (package carrier), has one goroutine, and is the idle carrier to that server as well: an idle
// agent has one connection to each. When the server opens a connection on it, the agent makes
// another session with that very server, and is connected all the while. There are two
// destinations (package policy): the cluster's kube-apiserver, for clients that speak TLS to it
// end to end, and the agent's own handler (package apihandler), for requests of the proxy API.
//
// The agent keeps carriers ready to each server (package carrier/pool). A server says its name
// on a new carrier. A carrier that led to another server behind the load balancer goes to
// the pool of that one. Connections to the kube-apiserver are dialed and relayed here. Those to the
// handler are not dialed: it serves on the carrier itself (connListener).
//
// One goroutine looks for the servers that the agent lacks, and each pool dials for its own server
// with a backoff of its own. A server has one state, which changes by the table in
// serverstate.go: it serves; it drains; it drains and knows that the agent has another
// server; it is half-open, since the session has become a carrier and no dial leads to the server
// for the next one. A half-open server can neither say that it drains nor ask for carriers: the
// agent looks for another one in its place, asks the proxy API to use other connections (drain.go),
// and leaves it when it has that one and nothing is open.
//
// # When it dials
//
// Without any server the agent dials after a random pause, whose limit doubles from
// --sync-interval to --sync-interval-cap, so that a thousand agents that lose a server
// do not come back at once. A carrier that was cut is replaced in the same way, unless
// the server asks for it. An agent that has a server has time to find a further one
// (search.go): it dials at a random time within 90 s of an event that all agents notice
// (a server drains, dies or is announced), and again until it has found the server.
// After five attempts for each server that there is the window doubles, up to 5 minutes, until a
// server announces another one. A fleet of 1,000 agents costs each remaining server less than 50
// handshakes a second. Half of the fleet has found a new server after 1 to 2 minutes,
// and 99 of 100 agents after 6 (two servers) to 12 minutes (four). Until then the
// servers reach each other's agents. If all servers of an agent drain, it looks for
// another one within half of the time that they say they wait, at once when one of them
// asks for carriers because a user waits, and tells them when it has one. If a server lost the
// session unnoticed, it refuses carriers with NoAgent and the agent reconnects. While DNS does not
// answer, the address of last time is dialed (package dial). A proxy server of konnectivity's
// has no control sessions: konnectivity's own agent is for that.
//
// # Every proxy server
//
// An agent connects to every proxy server, whose number the servers say. The agents have one
// address for all servers and cannot choose: behind a load balancer an agent finds them one by
// one. Of n servers every nth dial leads to the one that it lacks, and every nth new carrier to
// the one that needs it; the others get what they lack, and close the rest. More servers
// therefore cost more handshakes and more minutes (search.go), and nothing else fails meanwhile:
// the servers reach a cluster through each other. An address that leads one agent to the same
// server always (session affinity) finds no other server.
//
// An agent leaves a server that drains, when it has another one, and none that serves. A
// connection may come through a server that the agent has not found yet, and cannot be told when
// that one drains: it is cut at the end of the drain.
//
// # Who authenticates whom
//
// Towards the proxy server both sides show certificates: the server's is checked
// against the hub CA and the host dialed, the agent's is this cluster's alone.
// Files are read again when they change, and each new connection uses what they
// hold then. When they change, the agent dials a carrier to each server: it shows
// the new certificate, and a secret of this process lets the server count it for the
// agent's older connections, which end otherwise when their CA is dropped or their
// certificate expires (proxyserver's "What is taken away"). HTTPS_PROXY and NO_PROXY are honoured on the
// way to the hub, and not on that to the cluster's own kube-apiserver.
//
// # Health
//
// The agent is live as long as it runs, and ready while it has a tunnel. It renews the
// addon's Lease only while it has one: condition Available of the ManagedClusterAddOn
// thus tells whether the tunnel works. An outage of the hub makes the agent unready and
// is no reason to restart it. While most of a memory limit is used, it refuses dials as
// Overloaded (package memlimit).
//
// # Drain
//
// On SIGTERM the agent tells the servers, which prefer other agents from then on. It
// keeps serving until its connections have ended and the minimum has passed, or until
// --graceful-shutdown-timeout. The proxy API keeps connections to the handler open; answers tell
// it that the next request should use another one, also if a proxy server on the path
// drains. An idle connection does not delay a drain. At its end new dials are
// refused, since servers send what is refused to another agent, and what was accepted would
// be cut; the handler says GOAWAY, and requests that came just before have 3 seconds to end.
//
// # Port-forward mode
//
// If the kube-apiserver is the only address of the hub that the agent can reach, the
// agent dials itself: a local listener carries every connection through a port-forward
// to a proxy server's pod, with a hub credential that allows that as long as the
// cluster has the addon. TLS to the proxy server is the same inside.
//
// # Plain agent
//
// Without --cluster-name the agent dials whatever it is asked for, has no handler and renews no
// Lease. The chart always sets the name.
//
// # Files
//
//   - agent.go: the process, from New to Run. options.go: its flags.
//   - handler.go: the handler, what it asks about identities, and the connections that it is handed.
//     exposed.go: the Services that it forwards to.
//   - drain.go: the end of the process, and requests to the proxy API to use other connections.
//   - controlsession.go: control sessions with proxy servers, and carriers to one of them.
//   - servers.go: the proxy servers that the agent is connected to. serverstate.go: the state of
//     each. search.go: when the agent looks for more.
//   - carrierdialer.go: dials carriers and control sessions, also by an HTTPS proxy, and serves
//     what they ask for.
//   - handshakes.go: how TLS with proxy servers ends, and the wait for a certificate of this release's.
//   - lease.go, metrics.go: what OCM and operators see.
//   - portforward.go: port-forward mode.
package proxyagent
