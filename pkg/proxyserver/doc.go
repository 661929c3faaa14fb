// Package proxyserver is the process on the hub where tunnels end. Agents connect to one port,
// clients to another, and a client's dial is routed to an agent of the cluster that it names.
//
// # Data flow
//
//	client ──mTLS──▶ :8090 ─▶ carrier, or stream joined to one ─▶ agent's carrier ◀──mTLS── agent (:8091)
//
// Each connection gets a carrier of the agent (package carrier), whether the client speaks
// carriers or konnectivity's protocol (package konnectivity). The agent's control session says
// whose agent it is, asks for more carriers, announces drains in both directions and shows who
// is alive. It is the agent's idle carrier as well: when a connection is opened on it, the agent
// makes another session, and is known by the connection meanwhile (connectedagent.go).
//
// # Limits
//
// Anyone can reach the agent port and make it work on a ClientHello. Package handshakes bounds
// how many are worked on at a time (--max-handshakes), and has their order: carriers that users
// wait for come first. The agent port takes a small part of the processor only (agentRest),
// because fleets reconnect together.
//
// Limits hold for all agents of a cluster together (connectedagent.go): 64 agents, 8 control
// sessions of each (a ninth ends the oldest), --max-carriers carriers, of which 128 of one agent
// may be idle, and --max-pending-dials dials without an answer.
//
// # Peers
//
// Agents connect to every proxy server, one after another. A server without an agent of a cluster
// sends the dial to a peer (--peers) that has one (directory.go). A peer never sends it on.
//
// # Drain
//
// On SIGTERM a server becomes unready and tells the agents, which look for another server. It
// serves on until no client has connected for --min-drain-duration, three times that at most,
// and until each agent has another server, for a minute at most. Then it accepts no new
// connections, refuses dials on carriers (clients try another server), and ends with the last
// connection, or at --graceful-shutdown-timeout. Server.drain has the reasons.
//
// # Who may do what
//
//   - An agent's cluster is the one in its certificate (port 8091 trusts the agent CA
//     only). It may declare host identifiers of that cluster and nothing else; otherwise its
//     control session is refused and counted (agents_rejected_total). The ID of another
//     cluster's agent gains it nothing.
//   - A client's certificate (port 8090 trusts the hub CA only) must have one
//     of the roles of package identity.
//   - Routing is by destination host alone.
//   - Ready means that the certificates are good. It does not depend on agents:
//     a fresh server must become ready for agents to reach it.
//
// TLS authenticates a connection once. The server closes it (revoke.go) when the hub does not
// serve its cluster any more (--watch-managed-clusters), when its certificate ends, and when the
// agent CA that signed it leaves the bundle.
//
// A line in the log says who reached what, when a connection of the client port has ended
// (admission.go).
//
// # What fails how
//
// If an agent or a peer dies silently, because its packets vanish, dials pass it over after 2 s
// (hedge.go, package liveness), and go to the next agent of the cluster and then to the peers.
// Pings find the dead control session after at most --keepalive-time plus 10 s, which takes the
// agent out of routing; a dead carrier is found after at most a minute.
//
// A dial without an agent is answered with "No agent available". A port that runs out of file
// descriptors accepts again as soon as some are free. While most of a memory limit is used, dials
// are refused as Overloaded (package memlimit).
//
// # Files
//
// In the order of a connection.
//
//   - run.go: the process, from New to the drain.
//   - ports.go: the ports and their TLS handshakes.
//   - dials.go: carriers, and the routing of dials: how one finds its agent.
//   - admission.go: whose agent has connected, and its control session; who may be a client,
//     and the log of their connections.
//   - server.go: what a Server consists of.
//   - revoke.go: ends connections whose right has ended. metrics.go: what operators see.
//   - peerdials.go: asks peers for a connection. peers.go: which there are, and what they say.
//   - directory.go: which agents an address leads to, for dials and for peers.
//   - agentregistry.go: the agents that are connected. connectedagent.go: one of them, and what
//     those of a cluster may have together. news.go: what peers are told of them.
//   - hedge.go: the second attempt of a dial. options.go: the flags.
package proxyserver
