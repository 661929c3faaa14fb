package proxyserver

import (
	"crypto/tls"
	"net"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/handshakes"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyserver/konnectivity"
)

// admitClient reports why a client is refused: its certificate has no role, or its CA is not
// trusted any more. Certificates of an older cluster-proxy had the first SAN as common name, and
// no role. The addon manager issues that Secret again under its old name, so that clients that
// mount it get a role without a change.
func (s *Server) admitClient(conn *tls.Conn) error {
	state := conn.ConnectionState()
	_, err := pki.PeerRole(state)
	if err == nil {
		err = s.stillTrusted(state)
	}
	if err != nil {
		s.metrics.clientsRejected.WithLabelValues("role").Inc()
		s.logger.Info("Client rejected", "reason", "role", "message", err.Error(), "peer", conn.RemoteAddr().String())
	}
	return err
}

// caller is a client of the client port.
type caller struct {
	role identity.Role
	peer string
}

// callerOn is the client of a connection.
func callerOn(transport net.Conn) caller {
	c := caller{peer: transport.RemoteAddr().String()}
	if secure, ok := transport.(*tls.Conn); ok {
		if role, err := pki.PeerRole(secure.ConnectionState()); err == nil {
			c.role = role
		}
	}
	return c
}

// beginConnection returns what to call when a connection to target has ended, with
// the bytes that the client sent and received, or -1. It logs who reached what: for
// clients that reach clusters directly, nothing else records that. The requests of
// the proxy API are in its audit log, and connections of a peer in the peer's own
// log, so those are logged at verbosity 1 only.
func (s *Server) beginConnection(who caller, target string) (ended func(sent, received int64)) {
	logger := s.logger
	if who.role == identity.RoleProxyAPI || who.role == identity.RolePeer {
		logger = logger.V(1)
	}
	if !logger.Enabled() {
		return func(int64, int64) {}
	}
	began := time.Now()
	cluster := s.registry.clusterOf(target)
	return func(sent, received int64) {
		logger.Info("Connection ended", "role", string(who.role), "peer", who.peer, "cluster", cluster, "target", target,
			"sent", sent, "received", received, "duration", time.Since(began).Round(time.Millisecond).String())
	}
}

// clusterOf is the cluster that an address leads to, or empty if only peers know.
func (a *agentRegistry) clusterOf(address string) string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for agent := range a.candidates(address) {
		return agent.key.cluster
	}
	return ""
}

// newKonnectivity makes the server to those that speak konnectivity's protocol.
func (s *Server) newKonnectivity() *konnectivity.Server {
	o := konnectivity.Options{ServerID: s.options.ServerID, ServerCount: s.options.ServerCount, Agents: s.options.KonnectivityAgents,
		DialTimeout: s.options.DialTimeout, KeepaliveTime: s.options.KeepaliveTime}
	return konnectivity.New(o, konnectivity.Core{
		AdmitClient: s.admitClient, Open: s.open, Serves: s.registry.knows,
		Overloaded: func() error { return s.memory.Err() },
		BeginConnection: func(conn *tls.Conn, target string) (ended func(sent, received int64)) {
			return s.beginConnection(callerOn(conn), target)
		},
		AdmitAgent: func(conn *tls.Conn, ids, identifiers []string) (cluster string, err error) {
			link := agentLink{source: handshakes.SourceOf(conn.RemoteAddr()), peer: conn.RemoteAddr().String()}
			err = s.admitAgent(&link, conn, declaration{ids: ids, identifiers: identifiers})
			return link.cluster, err
		},
	})
}
