// Package proxyagent is the agent on a managed cluster. It dials the hub, which can
// then reach a cluster that accepts no connections.
//
// # Data flow
//
// The agent keeps a control session with each proxy server. The session runs on a carrier
// (package carrier), and is the idle carrier to that server as well: an idle agent has one
// connection to each. When the server opens a connection on it, the agent makes another session
// with that very server. There are two destinations (package policy): the cluster's
// kube-apiserver, for clients that speak TLS to it end to end, which is dialed; and the agent's
// own handler (package apihandler), for requests of the proxy API, which serves on the carrier.
//
// Package carrier/pool keeps carriers ready to each server. A server says its name on a new
// carrier, which goes to that server's pool. A server has one state, which changes by the table in
// serverstate.go. A half-open server, whose session has become a carrier while no dial leads to it for the
// next one, can neither say that it drains nor ask for carriers: the agent leaves it (settleLocked).
//
// # Every proxy server
//
// An agent connects to every proxy server, whose number the servers say. It has one address for all
// of them: behind a load balancer of n servers every nth dial leads to the one that it lacks. With
// session affinity an agent finds no other server.
//
// Without any server the agent dials after a random pause that doubles from --sync-interval to
// --sync-interval-cap, so that a thousand agents do not come back at once. An agent that has a
// server takes its time to find a further one (search.go). If a server lost the session
// unnoticed, it refuses carriers with NoAgent and the agent reconnects.
//
// # A lost server
//
// When the last control session with a server ends, the agent forgets the server (removeLocked in servers.go).
// Connections go on, since carriers are their own. The loop that looks for servers dials another session
// (connect, addSession in controlsession.go), with a server that it lacks or in the ended one's place.
//
// An agent leaves a server that drains, when it has another one, and none that serves. A
// connection through a server that the agent has not found is cut at the end of that one's drain.
//
// # Who authenticates whom
//
// Both sides show certificates: the proxy server's is checked against the hub CA and the host
// dialed, the agent's is this cluster's alone. When the files change, the agent dials a carrier to
// each server: it shows the new certificate, and a secret of this process lets the server count it
// for the agent's older connections, which end otherwise when their CA is dropped or their
// certificate expires. HTTPS_PROXY and NO_PROXY are for the way to the hub only.
//
// # Health
//
// The agent is ready, and renews the addon's Lease, while it has a tunnel: condition Available of
// the ManagedClusterAddOn tells whether the tunnel works. It is live as long as it runs. While
// most of a memory limit is used, it refuses dials as Overloaded (package memlimit).
//
// # Drain
//
// On SIGTERM the agent tells the servers, which prefer other agents from then on. It keeps serving
// until its connections have ended and the minimum has passed, or until --graceful-shutdown-timeout.
// Answers tell the proxy API to use another connection next, also if a proxy server on the path
// drains. At the end new dials are refused, which servers send to another agent, and the handler
// says GOAWAY: requests that came just before have 3 seconds to end.
//
// # Other modes
//
// Port-forward: a local listener carries every connection through the hub's kube-apiserver to a
// proxy server's pod, with a hub credential that allows that as long as the cluster has the addon.
//
// Without --cluster-name, which the chart always sets, the agent dials whatever it is asked for,
// has no handler and renews no Lease.
//
// # Files
//
//   - agent.go: the process, from New to the end of its drain.
//   - handler.go: what the handler may be asked for, and the Services that it forwards to.
//   - drain.go: requests to the proxy API to use other connections.
//   - controlsession.go: control sessions with proxy servers, and carriers to one of them.
//   - servers.go: the proxy servers that the agent is connected to. serverstate.go: the state of
//     each. search.go: when the agent looks for more.
//   - carrierdialer.go: dials carriers and control sessions, and serves what they ask for.
//   - handshakes.go: how TLS with proxy servers ends.
//   - lease.go, metrics.go: what OCM and operators see.
//   - portforward.go: port-forward mode. options.go: the flags.
package proxyagent
