// Package proxyserver is the process on the hub where tunnels end. Agents connect to
// one port, clients to another, and a client's dial is routed to an agent of the
// cluster that it names.
//
// # Data flow
//
//	client ──mTLS──▶ :8090 ─▶ carrier, or stream joined to one ─▶ agent's carrier ◀──mTLS── agent (:8091)
//
// Each connection gets a carrier of the agent (package carrier), whether the client speaks
// carriers or konnectivity's protocol. The agent's
// control session says whose agent it is, asks for more carriers, announces drains in
// both directions and shows who is alive. It is a control carrier (admission.go)
// with one goroutine, and the agent's idle carrier at the same time: a
// connection for which there is no other carrier is opened on it, and the agent makes another
// session. Until that comes the agent stays known by the connection, and for 5 s after it
// (connectedagent.go). Package konnectivity serves clients of konnectivity's and, in place of a
// konnectivity server (--konnectivity-agents), its agents.
//
// Each port makes the TLS handshake itself (mux.go) and hands the connection to the
// protocol that ALPN selected. At most --max-handshakes are worked on at a time; one
// that waits for its peer does not count, so neither distance nor a silent peer delays
// the others. On the agent port they take a small part of the processor only
// (agentRest), because fleets reconnect together.
//
// # Floods
//
// Anyone can reach the agent port and make it work on a ClientHello. Package
// handshakes has the order in which handshakes are worked on, and how many wait.
// Carriers that users wait for, because the server asked an agent for them, come
// first: they are known by their address, that of the agent's control session.
//
// # What one cluster may have
//
// A certificate names a cluster, and limits hold for all agents of a cluster
// together (connectedagent.go): 64 agents, 8 control sessions of each of which the oldest makes room,
// --max-carriers carriers of which 128 of one agent may be idle, and
// --max-pending-dials dials without an answer.
//
// # Peers
//
// Agents connect to every proxy server, which they find one by one. A server that has no
// agent of a cluster sends the dial to a peer (--peers, peers.go), which never sends it on.
// Each peer says which hosts it has agents of, everything at first and then every change
// (directory.go): a dial is one hop.
//
// # Drain
//
// On SIGTERM a server becomes unready and tells the agents, which look for another
// server. It keeps serving until no client has connected for --min-drain-duration (how
// long a Service leads them here depends on kube-proxy; three times that is the most, for
// load balancers that probe the port), and until each agent
// has said that it has another server, for a minute at most: otherwise the only server
// would stop before its agents have found the next one. A dial to an agent without an
// idle carrier goes to the peers first from then on, because a Service leads agents to
// other servers by now; asked for carriers all the same, an agent that has no other
// server looks for one at once. Then it accepts no new
// connections, refuses dials on carriers (clients try another server), and ends with
// the last connection, or at --graceful-shutdown-timeout.
//
// # Who may do what
//
//   - An agent's cluster is the one in its certificate (port 8091 trusts the agent CA
//     only). It may declare host identifiers of that cluster and nothing else;
//     otherwise its control session is refused (Denied, PermissionDenied), counted in
//     cluster_proxy_server_agents_rejected_total and logged. An ID is unique
//     within a cluster only. An agent gains nothing by the ID of another cluster's
//     agent, which is counted in cluster_proxy_server_agent_id_conflicts_total.
//   - A client's certificate (port 8090 trusts the hub CA only) must have one
//     of the roles of package identity. The client certificates of an older
//     cluster-proxy had the first SAN as common name; they are refused, because
//     the addon manager issues that Secret again under its old name, so that
//     clients that mount it get a role without a change.
//   - Routing is by destination host alone.
//   - Ready means that the certificates are good. It does not depend on agents:
//     a fresh server must become ready for agents to reach it.
//
// # What is taken away
//
// TLS authenticates a connection once. The server checks again whether the peer may
// still connect (peerConns in revoke.go), and closes a connection that fails the check as a
// whole: when the hub does not serve its cluster any more (--watch-managed-clusters), when
// its certificate ends, and when the agent CA that signed it leaves the bundle.
//
// # Who reached what
//
// When a connection of the client port ends, one line is logged with role, address,
// cluster, target, bytes and duration (clients.go): for clients that reach
// clusters directly nothing else records that. Connections of the proxy API, whose
// requests are in its audit log, and of peers are logged at verbosity 1.
//
// # What fails how
//
// If an agent dies silently, because its packets vanish, dials pass it over after 2 s
// (hedge.go, package liveness), and go to the next agent of the cluster and then to the peers.
// Peers are pinged and passed over in the same way.
//
// A dial without an agent is answered with "No agent available". A dead agent's control
// session is found by pings after at most --keepalive-time plus 10 s, and the agent is out of
// routing then; a dead carrier by keepalives and missing acknowledgements, after at most a minute.
// A port that runs out of file descriptors accepts again as soon as some are free, and open
// connections continue; a line in the log marks the beginning and the end. When most of a memory
// limit is used, dials are refused as Overloaded (package memlimit). Changed certificates apply to
// new handshakes, and "What is taken away" says what becomes of connections that exist.
//
// # Files
//
// Read dials.go first: how a dial finds its agent. Then, in the order of a connection:
//
//   - server.go: the process, from New to the drain. options.go: its flags.
//   - ports.go, mux.go: the ports and their TLS handshakes.
//   - dials.go: carriers, and the routing of dials.
//   - admission.go: whose agent has connected, and its control session.
//   - clients.go: who may be a client, the log of their connections, and what package
//     konnectivity asks of the server.
//   - revoke.go: ends connections whose right has ended.
//   - peers.go: the other proxy servers. directory.go: which of them has agents of a host.
//     servercount.go: how many there are. metrics.go: what operators see.
//   - agentregistry.go: the agents that are connected. connectedagent.go: one of them, and what
//     those of a cluster may have together. hedge.go: the second attempt of a dial.
package proxyserver
