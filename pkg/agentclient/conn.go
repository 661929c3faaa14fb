package agentclient

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// connectTimeout bounds a dial through the tunnel with its TLS handshake.
const connectTimeout = 15 * time.Second

// connections are those to the agents of one cluster.
type connections struct {
	cluster string
	options *Options
	// withoutServer is when a dial last found no proxy server, in nanoseconds since 1970.
	withoutServer *atomic.Int64

	mu       sync.Mutex // of the below
	gone     bool
	conns    map[*pooledConn]struct{}
	presence presence
}

// connect dials the agent's handler and makes sure that it is that agent.
func (p *connections) connect(ctx context.Context, protocol string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	start := time.Now()
	host := identity.HandlerHost(p.cluster)
	raw, err := p.options.Dial(ctx, "tcp", net.JoinHostPort(host, identity.HandlerPort))
	if err := p.dialed(err); err != nil {
		return nil, err
	}
	conn, err := p.track(raw)
	if err != nil {
		return nil, err
	}
	config := p.options.TLS(host)
	config.NextProtos = []string{protocol}
	secure := tls.Client(connect.BelowTLS(conn), config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error is the one that matters
		return nil, p.handshakeFailed(err)
	}
	if err := p.admit(conn, secure.ConnectionState()); err != nil {
		_ = conn.Close()
		return nil, err
	}
	p.options.Metrics.Connect.Observe(time.Since(start).Seconds())
	return secure, nil
}

// handshakeFailed counts and logs that an agent did not prove to be that of its cluster,
// or did not believe us: users can be told in part only.
func (p *connections) handshakeFailed(err error) error {
	err = pki.Explain(err)
	reason := pki.HandshakeReason(err)
	p.options.Metrics.HandshakeFailures.WithLabelValues(reason).Inc()
	klog.Background().Error(err, "TLS with an agent failed", "cluster", p.cluster, "reason", reason)
	return &HandshakeError{err}
}

// admit compares the agent's certificate with the ManagedCluster that has its
// cluster's name now.
func (p *connections) admit(conn *pooledConn, state tls.ConnectionState) error {
	peer, err := pki.PeerAgent(state)
	if err != nil {
		return p.handshakeFailed(err)
	}
	certificate, err := pki.PeerCertificate(state)
	if err != nil {
		return p.handshakeFailed(err)
	}
	p.mu.Lock()
	conn.certificate = certificate
	p.mu.Unlock()
	if err := p.options.Admission.Admit(peer); err != nil {
		p.options.Metrics.HandshakeFailures.WithLabelValues("cluster").Inc()
		klog.Background().Info("Agent refused", "cluster", p.cluster, "message", err.Error())
		return &HandshakeError{err}
	}
	return nil
}

// track registers conn, so that it ends with the cluster. A cluster that stopped
// being served before conn was registered is noticed here, one that stops later by
// evict.
func (p *connections) track(conn net.Conn) (*pooledConn, error) {
	c := &pooledConn{Conn: conn, owner: p}
	if err := p.register(c); err != nil {
		_ = conn.Close()
		return nil, err
	}
	if err := p.options.Admission.Served(p.cluster); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (p *connections) register(c *pooledConn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return net.ErrClosed
	}
	p.conns[c] = struct{}{}
	p.options.Metrics.Connections.Inc()
	return nil
}

// pooledConn is a connection to an agent.
type pooledConn struct {
	net.Conn
	owner *connections
	once  sync.Once
	// certificate is the agent's; nil if there is none, and once it was found not
	// to be good any more. Under the owner's mu.
	certificate *pki.Certificate
}

func (c *pooledConn) Close() error {
	c.once.Do(func() {
		c.owner.mu.Lock()
		delete(c.owner.conns, c)
		c.owner.presence.there = time.Now()
		c.owner.mu.Unlock()
		c.owner.options.Metrics.Connections.Dec()
	})
	return c.Conn.Close()
}

// isUnacknowledged reports whether something that was sent on a connection which connect
// returned has not been acknowledged, as far as the tunnel can tell: by the proxy server.
func isUnacknowledged(conn net.Conn) bool {
	for {
		switch over := conn.(type) {
		case *pooledConn:
			conn = over.Conn
		case interface{ IsUnacknowledged() bool }:
			return over.IsUnacknowledged()
		case interface{ NetConn() net.Conn }:
			conn = over.NetConn()
		default:
			return false
		}
	}
}

// Abort is for connect.Abort.
func (c *pooledConn) Abort(error) {
	connect.Abort(c.Conn)
	_ = c.Close()
}

// CloseWrite says that this side has no more to send.
func (c *pooledConn) CloseWrite() error { return dial.CloseWrite(c.Conn, c.Close) }

// dialed notes how a dial ended, and returns its error: an AwayError for an agent that is not
// expected back.
func (p *connections) dialed(err error) error {
	p.observeDial(err)
	now := time.Now()
	switch code := tunnel.CodeOf(err); {
	case err == nil, code == tunnel.Denied, code == tunnel.Unreachable: // the agent has answered
		p.mu.Lock()
		p.presence = presence{there: now}
		p.mu.Unlock()
	case code == tunnel.NoProxyServer:
		p.withoutServer.Store(now.UnixNano())
	case code == tunnel.NoAgent:
		return p.missed(now, err)
	}
	return err
}

// missed notes that a dial found no agent.
func (p *connections) missed(now time.Time, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.conns) > 0 {
		p.presence.there = now // it may drain
	}
	if !p.presence.missing {
		p.presence.missing = true
		expected := p.presence.there
		if lost := time.Unix(0, p.withoutServer.Load()); lost.After(expected) {
			expected = lost // its agents come back when they can
		}
		p.presence.until = expected.Add(AwayAfter)
	}
	if now.Before(p.presence.until) {
		return err
	}
	return &AwayError{Err: err, Since: p.presence.there}
}

func (p *connections) observeDial(err error) {
	result := "Connected"
	if err != nil {
		if result = string(tunnel.CodeOf(err)); result == "" {
			result = "Failed"
		}
	}
	p.options.Metrics.Dials.WithLabelValues(result).Inc()
}
