package proxyserver

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

// carrierProtocol is the ALPN name of carriers (pkg/carrier/spec.md).
const carrierProtocol = "cluster-proxy/1"

// keepalive finds dead peers of carriers, which have no pings of their own.
var keepalive30 = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}

// muxListener makes the TLS handshake on a port and sends each connection where
// its protocol belongs: carriers to a function, everything else out of Accept,
// to the port's gRPC or HTTP server. Handshakes are made side by side but not
// all at once, so that a thousand agents that come back together leave the
// processor to live traffic (admittedConn).
type muxListener struct {
	net.Listener
	config   *tls.Config
	carriers func(*tls.Conn)
	rest     chan net.Conn
	admitted chan struct{}
	done     chan struct{}
	once     sync.Once
}

// newMuxListener takes over config. It must be served with serve.
func newMuxListener(listener net.Listener, config *tls.Config, protocol string, carriers func(*tls.Conn)) *muxListener {
	config.NextProtos = []string{carrierProtocol, protocol}
	return &muxListener{
		Listener: listener, config: config, carriers: carriers,
		rest: make(chan net.Conn), admitted: make(chan struct{}, 2*runtime.GOMAXPROCS(0)), done: make(chan struct{}),
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
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetKeepAliveConfig(keepalive30)
		}
		go m.handshake(conn)
	}
}

func (m *muxListener) handshake(raw net.Conn) {
	select {
	case m.admitted <- struct{}{}:
	case <-m.done:
		_ = raw.Close()
		return
	}
	admitted := &admittedConn{Conn: raw, places: m.admitted}
	conn := tls.Server(admitted, m.config)
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	err := conn.HandshakeContext(ctx)
	cancel()
	admitted.done.Store(true)
	<-m.admitted
	switch {
	case err != nil:
		_ = raw.Close()
	case conn.ConnectionState().NegotiatedProtocol == carrierProtocol:
		m.carriers(conn)
	default:
		select {
		case m.rest <- conn:
		case <-m.done:
			_ = conn.Close()
		}
	}
}

// admittedConn gives its place up while the handshake waits for the peer, so
// that places are for those who compute, and peers that say nothing keep nobody
// out.
type admittedConn struct {
	net.Conn
	places chan struct{}
	done   atomic.Bool
}

func (c *admittedConn) Read(p []byte) (int, error) {
	if c.done.Load() {
		return c.Conn.Read(p)
	}
	<-c.places
	n, err := c.Conn.Read(p)
	c.places <- struct{}{}
	return n, err
}

// Accept gives the next connection that is not a carrier, its handshake made.
func (m *muxListener) Accept() (net.Conn, error) {
	select {
	case conn := <-m.rest:
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
