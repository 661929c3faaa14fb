package proxyserver

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// caller is a client of the client port.
type caller struct {
	role identity.Role // empty where roles are not checked
	peer string
}

func (c caller) with(state tls.ConnectionState) caller {
	if role, err := pki.PeerRole(state); err == nil {
		c.role = role
	}
	return c
}

// callerOf is the client of a stream.
func callerOf(ctx context.Context) caller {
	c := caller{peer: peerAddress(ctx)}
	if state, err := peerTLS(ctx); err == nil {
		c = c.with(state)
	}
	return c
}

// callerOn is the client of a carrier.
func callerOn(transport net.Conn) caller {
	c := caller{peer: transport.RemoteAddr().String()}
	if secure, ok := transport.(*tls.Conn); ok {
		c = c.with(secure.ConnectionState())
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
