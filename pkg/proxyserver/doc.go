// Package proxyserver is the process on the hub where tunnels end: agents come
// in on one port, clients on another, and a client's dial is routed to an agent
// of the cluster that it names.
//
// # Data flow
//
//	client ──mTLS──▶ :8090 ─▶ clientStream ─▶ konnectivity's server ─▶ agentStream ─▶ :8091 ◀──mTLS── agent
//
// The data plane is konnectivity's own server package, so that its clients and
// agents work unmodified: gRPC or HTTP CONNECT towards clients, on a port or a
// Unix socket, gRPC towards agents. What this package adds stands between the
// wire and that package, as stream interceptors and as a backend manager.
//
// Each port is a plain TCP listener whose server does the TLS handshake with a
// configuration of pki.Source. A second protocol on a port is a matter of its
// ALPN name: it needs a listener that makes the handshake first and hands the
// connection to one server or the other.
//
// # Who may do what
//
// With --agent-identity=certificate, which the chart sets:
//
//   - An agent's cluster is the one in its certificate (port 8091 trusts the
//     agent CA only). It may declare host identifiers of that cluster and
//     nothing else; otherwise the stream ends with PermissionDenied, counted in
//     cluster_proxy_server_agent_identity_rejected_total and logged.
//   - A client's certificate (port 8090 trusts the hub CA only) must have one
//     of the roles of package identity. The client certificates of an older
//     cluster-proxy had the first SAN as common name; they are refused, because
//     the addon manager issues that Secret again under its old name, so that
//     clients that mount it get a role without a change.
//   - Routing is by destination host alone. konnectivity's other strategies may
//     choose an agent at random, that is, of any cluster, and are refused.
//   - Ready means that the certificates are good. It does not depend on agents:
//     a fresh server must become ready for agents to reach it.
//
// With --agent-identity=declared it is a plain konnectivity server for one
// cluster: agents are believed, every client of the CA is served, and it is
// ready once an agent is connected. On a Unix socket file permissions decide
// about clients.
//
// # What konnectivity's server must not see
//
//   - It files connections under agent ID and connection ID, and each stream
//     counts the latter from 1. Two streams with one agent ID, after a
//     reconnect or from a hostile agent, would mix. In certificate mode every
//     stream gets an agent ID of its own that starts with the cluster.
//   - It takes the answer to a dial from any agent. Only answers to dials that
//     this very agent was asked for pass.
//   - It forwards what a client sends to any connection ID. A client's stream
//     is one dial, and packets for any other connection end it.
//   - It panics on a packet whose payload is not of its type. Such a packet
//     ends its stream.
//
// # Several agents of one cluster
//
// konnectivity gives every dial to the agent that came first. Here it goes to
// the one with the fewest connections (certificate mode; see balance.go).
//
// # What fails how
//
// A dial without an agent is answered with "No agent available". When an
// agent's stream ends, its connections are closed towards the clients, without
// an error, as konnectivity has it. Dead peers are found by pings after at most
// --keepalive-time plus 10 s. On SIGTERM the server drains, see Server.Run.
// Changed certificates apply to new handshakes; connections and streams that
// exist go on.
//
// Verbosity is 0 unless asked otherwise. konnectivity's own default of 4 logs a
// line per connection and more, which costs throughput.
//
// Out of scope here: authentication of agents by token and Leases of servers
// (konnectivity has both), forwarding between proxy servers, carriers.
package proxyserver
