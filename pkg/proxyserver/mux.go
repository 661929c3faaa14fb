package proxyserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/handshakes"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// muxListener makes the TLS handshakes of a port and hands each connection to the
// protocol that ALPN selected: carriers to a function, everything else to Accept, for
// the port's gRPC or HTTP server. Package handshakes bounds the handshakes and says
// which comes next, so that a thousand agents that reconnect together leave the
// processor to live traffic.
type muxListener struct {
	*connect.Queue // of what is no carrier
	inner          net.Listener
	source         *pki.Reloader
	agents         bool // it is the agents' port
	conns          *peerConns
	carriers       func(*tls.Conn)
	limits         *Limits
	metrics        *serverMetrics
	logger         klog.Logger
	shaking        *handshakes.Port

	sayFailure rate.Sometimes
}

// newMuxListener makes a listener of the certificates in source. It must be served
// with serve.
func newMuxListener(listener net.Listener, source *pki.Reloader, protocol string, s *Server, rest int, carriers func(*tls.Conn)) *muxListener {
	config := source.ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{carrier.ALPN, protocol}
	return &muxListener{
		Queue: connect.NewQueue(listener.Addr()), inner: listener, source: source, agents: source == s.agentSource, conns: s.conns, carriers: carriers, limits: &s.options.Limits, metrics: s.metrics, logger: s.logger,
		shaking: handshakes.New(handshakes.Options{Config: config, Limit: s.options.MaxHandshakes, Rest: rest, Timeout: s.options.HandshakeTimeout,
			Dropped: func(reason string) { s.metrics.handshakesDropped.WithLabelValues(reason).Inc() }}),
		sayFailure: rate.Sometimes{First: 10, Interval: 200 * time.Millisecond},
	}
}

// serve accepts until the listener is closed.
func (m *muxListener) serve() {
	handshakes.Accept(m.inner, m.logger, func(conn net.Conn) {
		m.handshake(dial.TCP{KeepAlive: m.limits.TCPKeepAlive, UserTimeout: m.limits.TCPUserTimeout}.Tune(conn))
	})
}

func (m *muxListener) handshake(raw net.Conn) {
	conn, err := m.shaking.Handshake(raw, func(conn *tls.Conn) func() { return m.conns.add(conn, raw, m.source, m.agents) })
	switch {
	case err != nil:
		m.metrics.handshakes.WithLabelValues("failed").Inc()
		m.noteFailure(raw.RemoteAddr(), err)
		return
	case conn.ConnectionState().DidResume:
		m.metrics.handshakes.WithLabelValues("resumed").Inc()
	default:
		m.metrics.handshakes.WithLabelValues("full").Inc()
	}
	if conn.ConnectionState().NegotiatedProtocol == carrier.ALPN {
		m.carriers(conn)
		return
	}
	if m.conns.tooMany(conn) {
		m.metrics.limited.WithLabelValues("streams").Inc()
		_ = conn.Close()
		return
	}
	if !m.Hand(conn) {
		_ = conn.Close()
	}
}

// noteFailure logs why a handshake failed if certificates are the reason. Other
// failures are port scans and connections that were cut. Anyone can cause many, so at
// most a few a second are logged.
func (m *muxListener) noteFailure(peer net.Addr, err error) {
	reason := pki.HandshakeReason(err)
	m.metrics.tlsFailures.WithLabelValues(reason).Inc()
	if reason == pki.ReasonClosed || reason == pki.ReasonOther {
		return
	}
	m.sayFailure.Do(func() {
		m.logger.Info("TLS handshake failed", "reason", reason, "error", m.explain(err).Error(), "peer", peer.String())
	})
}

// explain adds to an error what it means. An agent of OCM's own cluster-proxy has a
// certificate, but of another CA, and crypto/tls sends none that the server did not ask
// for.
func (m *muxListener) explain(err error) error {
	err = pki.Explain(err)
	if m.agents && pki.NoCertificate(err) {
		return fmt.Errorf("%w of the agent CA: if it is an agent, an agent of an older release, which is replaced as soon as its cluster has a certificate of this one", err)
	}
	return err
}

// Close takes no new connections.
func (m *muxListener) Close() error {
	err := m.inner.Close()
	_ = m.Queue.Close()
	m.shaking.Close()
	return err
}

// handshaken are credentials for connections of a muxListener.
type handshaken struct{}

func (handshaken) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return nil, nil, errNoTLS
	}
	return conn, authInfo{conn: secure, TLSInfo: credentials.TLSInfo{
		State:          secure.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}}, nil
}

// authInfo is what gRPC is told about a connection.
type authInfo struct {
	credentials.TLSInfo
	conn *tls.Conn
}

func (handshaken) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are credentials of a server")
}

func (handshaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (h handshaken) Clone() credentials.TransportCredentials { return h }

func (handshaken) OverrideServerName(string) error { return nil }
