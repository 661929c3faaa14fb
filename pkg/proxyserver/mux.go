package proxyserver

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// muxListener makes the TLS handshake on a port and sends each connection where
// its protocol belongs: carriers to a function, everything else out of Accept,
// to the port's gRPC or HTTP server. Handshakes are made side by side but not
// all at once, so that a thousand agents that come back together leave the
// processor to live traffic. Those that wait for their peer do not count: a
// peer that stays silent, or is far away, keeps nobody waiting. turns says which
// handshake comes next, and lobby how many there may be.
type muxListener struct {
	net.Listener
	config   *tls.Config
	source   *pki.Source // of config
	agents   bool        // it is the agents' port
	conns    *peerConns
	carriers func(*tls.Conn)
	limits   *Limits
	metrics  *serverMetrics
	logger   klog.Logger
	others   chan net.Conn // what is no carrier, for Accept
	turns    *turns
	lobby    *lobby
	done     chan struct{}
	once     sync.Once

	sayFailure rate.Sometimes
}

// newMuxListener makes a listener of the certificates in source. It must be served
// with serve.
func newMuxListener(listener net.Listener, source *pki.Source, protocol string, s *Server, pace int, carriers func(*tls.Conn)) *muxListener {
	config := source.ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{carrier.ALPN, protocol}
	return &muxListener{
		Listener: listener, config: config, source: source, agents: source == s.agentSource, conns: s.conns, carriers: carriers, limits: &s.options.Limits, metrics: s.metrics, logger: s.logger,
		lobby:  newLobby(func(reason string) { s.metrics.handshakesDropped.WithLabelValues(reason).Inc() }),
		others: make(chan net.Conn), turns: newTurns(s.options.MaxHandshakes, pace), done: make(chan struct{}),
		sayFailure: rate.Sometimes{First: 10, Interval: 200 * time.Millisecond},
	}
}

// serve accepts until the listener is closed.
func (m *muxListener) serve() {
	var pause time.Duration
	for {
		conn, err := m.Listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of file descriptors, most likely: other connections must end first.
			if pause == 0 {
				m.logger.Error(err, "Accepting no connections until that is over", "address", m.Addr().String())
			}
			pause = min(max(2*pause, shortestPause), longestPause)
			time.Sleep(pause)
			continue
		}
		if pause > 0 {
			m.logger.Info("Accepting connections again", "address", m.Addr().String())
			pause = 0
		}
		go m.handshake(carrier.TCP{KeepAlive: m.limits.TCPKeepAlive, UserTimeout: m.limits.TCPUserTimeout}.Tune(conn))
	}
}

// shortestPause and longestPause bound the time between two accepts that fail.
const (
	shortestPause = 5 * time.Millisecond
	longestPause  = time.Second
)

func (m *muxListener) handshake(raw net.Conn) {
	v := m.lobby.enter(raw)
	conn, err := m.shakeHands(raw, v)
	m.lobby.leave(v, err)
	switch {
	case err != nil:
		m.metrics.handshakes.WithLabelValues("failed").Inc()
		m.noteFailure(raw.RemoteAddr(), err)
		_ = raw.Close()
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
	select {
	case m.others <- conn:
	case <-m.done:
		_ = conn.Close()
	}
}

// noteFailure says why a handshake failed if that is about certificates. The
// rest is port scans and connections that were cut, and anybody can make many:
// of all, a few a second are logged.
func (m *muxListener) noteFailure(peer net.Addr, err error) {
	reason := pki.HandshakeReason(err)
	m.metrics.tlsFailures.WithLabelValues(reason).Inc()
	if reason == pki.ReasonClosed || reason == pki.ReasonOther {
		return
	}
	m.sayFailure.Do(func() {
		m.logger.Info("TLS handshake failed", "reason", reason, "error", pki.Explain(err).Error(), "peer", peer.String())
	})
}

// Accept gives the next connection that is not a carrier, its handshake made.
func (m *muxListener) Accept() (net.Conn, error) {
	select {
	case conn := <-m.others:
		return conn, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

// Close takes no new connections.
func (m *muxListener) Close() error {
	err := m.Listener.Close()
	m.once.Do(func() { close(m.done); m.lobby.close() })
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

// authInfo is what gRPC knows of a connection.
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
