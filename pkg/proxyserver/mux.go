package proxyserver

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// agentRest is how many times as long as it was used a turn rests on the agent
// port. Nobody waits for an agent's connections, as there are spare ones; but a
// thousand agents that come back together would take the whole processor from
// live traffic for seconds, with what follows on a handshake and their own half
// of it. So they get a seventeenth of each turn, on machines of any speed.
const agentRest = 16

// longestRest bounds what a pause of the whole machine makes of that.
const longestRest = 100 * time.Millisecond

// muxListener makes the TLS handshake on a port and sends each connection where
// its protocol belongs: carriers to a function, everything else out of Accept,
// to the port's gRPC or HTTP server. Handshakes are made side by side but not
// all at once, so that a thousand agents that come back together leave the
// processor to live traffic. Those that wait for their peer do not count: a
// peer that stays silent, or is far away, keeps nobody waiting.
type muxListener struct {
	net.Listener
	config   *tls.Config
	carriers func(*tls.Conn)
	limits   *Limits
	metrics  *serverMetrics
	logger   klog.Logger
	others   chan net.Conn // what is no carrier, for Accept
	turns    chan struct{}
	pace     int // see agentRest
	done     chan struct{}
	once     sync.Once

	sayFailure rate.Sometimes
}

// newMuxListener takes over config. It must be served with serve.
func newMuxListener(listener net.Listener, config *tls.Config, protocol string, s *Server, pace int, carriers func(*tls.Conn)) *muxListener {
	config.NextProtos = []string{carrier.ALPN, protocol}
	return &muxListener{
		Listener: listener, config: config, carriers: carriers, limits: &s.options.Limits, metrics: s.metrics, logger: s.logger,
		others: make(chan net.Conn), turns: make(chan struct{}, s.options.MaxHandshakes), pace: pace, done: make(chan struct{}),
		sayFailure: rate.Sometimes{First: 10, Interval: 200 * time.Millisecond},
	}
}

// serve accepts until the listener is closed.
func (m *muxListener) serve() {
	for {
		conn, err := m.Listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of file descriptors, most likely: others must end first.
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go m.handshake(carrier.TCP{KeepAlive: m.limits.TCPKeepAlive, UserTimeout: m.limits.TCPUserTimeout}.Tune(conn))
	}
}

func (m *muxListener) handshake(raw net.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), m.limits.HandshakeTimeout)
	turn := &turnTaker{Conn: raw, turns: m.turns, pace: m.pace, handshaking: true, late: ctx.Done(), closed: m.done}
	conn := tls.Server(connect.BelowTLS(turn), m.config)
	err := conn.HandshakeContext(ctx)
	cancel()
	turn.end()
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

// turnTaker is the transport of a handshake. One that has something to work on
// takes a turn, and gives it back when it waits for its peer again; the turn
// then rests before it is another's.
type turnTaker struct {
	net.Conn
	turns        chan struct{}
	pace         int             // a turn rests that many times as long as it was used
	late, closed <-chan struct{} // no turn comes any more
	handshaking  bool            // only the handshake's goroutine uses it until end
	taken        time.Time       // zero without a turn
}

// NetConn is what crypto/tls calls the connection below.
func (t *turnTaker) NetConn() net.Conn { return t.Conn }

func (t *turnTaker) Read(p []byte) (int, error) {
	if !t.handshaking {
		return t.Conn.Read(p)
	}
	t.giveBack()
	n, err := t.Conn.Read(p)
	select {
	case t.turns <- struct{}{}:
		t.taken = time.Now()
		return n, err
	case <-t.late:
		return 0, os.ErrDeadlineExceeded
	case <-t.closed:
		return 0, net.ErrClosed
	}
}

func (t *turnTaker) giveBack() {
	if t.taken.IsZero() {
		return
	}
	rest := min(time.Duration(t.pace)*time.Since(t.taken), longestRest)
	t.taken = time.Time{}
	time.AfterFunc(rest, func() { <-t.turns })
}

func (t *turnTaker) end() {
	t.giveBack()
	t.handshaking = false
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
	m.once.Do(func() { close(m.done) })
	return m.Listener.Close()
}

// handshaken are credentials for connections of a muxListener.
type handshaken struct{}

func (handshaken) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return nil, nil, errNoTLS
	}
	return conn, credentials.TLSInfo{
		State:          secure.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

func (handshaken) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are credentials of a server")
}

func (handshaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (h handshaken) Clone() credentials.TransportCredentials { return h }

func (handshaken) OverrideServerName(string) error { return nil }
