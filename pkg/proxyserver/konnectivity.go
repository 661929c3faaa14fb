package proxyserver

import (
	"context"
	"crypto/tls"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/handshakes"
	"open-cluster-management.io/cluster-proxy/pkg/proxyserver/konnectivity"
)

// konnectivityCore is the server to those that speak konnectivity's protocol.
type konnectivityCore struct{ s *Server }

func (s *Server) newKonnectivity() *konnectivity.Server {
	o := konnectivity.Options{ServerID: s.options.ServerID, ServerCount: s.options.ServerCount, Agents: s.options.KonnectivityAgents,
		DialTimeout: s.options.DialTimeout, KeepaliveTime: s.options.KeepaliveTime}
	return konnectivity.New(o, konnectivityCore{s})
}

// AdmitClient is part of konnectivity.Core.
func (k konnectivityCore) AdmitClient(conn *tls.Conn) error { return k.s.admitClient(conn) }

// Open is part of konnectivity.Core.
func (k konnectivityCore) Open(ctx context.Context, request carrier.OpenRequest) (*carrier.Conn, error) {
	return k.s.open(ctx, request)
}

// BeginConnection is part of konnectivity.Core.
func (k konnectivityCore) BeginConnection(conn *tls.Conn, target string) (ended func(sent, received int64)) {
	return k.s.beginConnection(callerOn(conn), target)
}

// Overloaded is part of konnectivity.Core.
func (k konnectivityCore) Overloaded() error { return k.s.memory.Err() }

// AdmitAgent is part of konnectivity.Core.
func (k konnectivityCore) AdmitAgent(conn *tls.Conn, ids, identifiers []string) (cluster string, err error) {
	link := agentLink{source: handshakes.SourceOf(conn.RemoteAddr()), peer: conn.RemoteAddr().String()}
	err = k.s.admitAgent(&link, conn, declaration{ids: ids, identifiers: identifiers})
	return link.cluster, err
}

// Serves is part of konnectivity.Core.
func (k konnectivityCore) Serves(address string) bool { return k.s.registry.knows(address) }
