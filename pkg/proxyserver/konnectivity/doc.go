// Package konnectivity speaks konnectivity's protocol to the clients of the proxy server
// and, if it is asked to, to konnectivity's own agents. Nothing else imports konnectivity's
// server package.
//
// # Clients
//
// A client's gRPC stream on the client port is one dial and one connection. It is joined to
// a carrier of its own, and ends as konnectivity ends it. A connection may have 10,000
// streams, and the metadata of one 64 KiB.
//
// # In place of a konnectivity server
//
// With --konnectivity-agents (Options.Agents) the proxy server stands in for one of
// konnectivity's: its agents are served by konnectivity's server package, the client port
// takes HTTP CONNECT too (ALPN http/1.1, or none), and the server is ready only while an
// agent is connected. Without it none of that runs, and the agent port takes carriers alone.
//
// The identity of these agents comes from their certificate too. They need one of the agent
// CA that names their cluster, and --agent-identifiers that are hosts of that cluster. Only
// clients of konnectivity's protocol reach them: dials on carriers, and of peers, do not.
// The first agent of a cluster gets its dials, as konnectivity has it. Of a cluster that has
// agents of ours, those do.
//
// A certificate names a cluster, and not an agent: the agents of a cluster may have 64
// connections together, of 16 streams each. A connection ends when its certificate or its
// cluster is not served any more, as that of any agent does. An agent's connections are cut
// when its server stops.
//
// # What konnectivity's server must not see
//
//   - It files connections under agent ID and connection ID, and each stream
//     counts the latter from 1. Two streams with one agent ID, after a
//     reconnect or from a hostile agent, would mix. Every
//     stream gets an agent ID of its own that starts with the cluster.
//   - It accepts the answer to a dial, and the end of a connection, from any agent.
//     Only those from the agent that was asked for the dial pass.
//   - It forwards what a client sends to any connection ID. A client's stream
//     is one dial, and packets for any other connection end it.
//   - It panics on a packet whose payload is not of its type. Such a packet
//     ends its stream.
//
// Out of scope: konnectivity's authentication of agents by token, its Leases of servers,
// its other strategies, which may choose an agent of any cluster, and Unix sockets.
//
// # Files
//
//   - server.go: the three servers: gRPC for clients, HTTP CONNECT and gRPC for agents.
//   - metrics.go: konnectivity's metrics.
//   - clients.go: clients of gRPC and HTTP CONNECT.
//   - agents.go: agents, and what may be in their streams.
//   - core.go: what a Server is made of, and what it asks of the proxy server.
//   - connect.go: the HTTP server below CONNECT. packets.go: decodes data of clients without
//     a copy. handshaken.go: the TLS connections below gRPC.
package konnectivity
