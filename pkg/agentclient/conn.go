package agentclient

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// connect dials the agent's handler and makes sure that it is that agent.
func (p *pool) connect(ctx context.Context, protocol string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	start := time.Now()
	host := identity.HandlerHost(p.cluster)
	raw, err := p.client.options.Dial(ctx, "tcp", net.JoinHostPort(host, identity.HandlerPort))
	if err := p.dialed(err); err != nil {
		return nil, err
	}
	conn, err := p.track(raw)
	if err != nil {
		return nil, err
	}
	config := p.client.options.TLS(host)
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
	p.client.options.Metrics.Connect.Observe(time.Since(start).Seconds())
	return secure, nil
}

// handshakeFailed counts and logs that an agent did not prove to be that of its cluster,
// or did not believe us: users can be told in part only.
func (p *pool) handshakeFailed(err error) error {
	err = pki.Explain(err)
	reason := pki.HandshakeReason(err)
	p.client.options.Metrics.HandshakeFailures.WithLabelValues(reason).Inc()
	klog.Background().Error(err, "TLS with an agent failed", "cluster", p.cluster, "reason", reason)
	return &HandshakeError{err}
}

// admit compares the agent's certificate with the ManagedCluster that has its
// cluster's name now.
func (p *pool) admit(conn *pooledConn, state tls.ConnectionState) error {
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
	if err := p.client.options.Admission.Admit(peer); err != nil {
		p.client.options.Metrics.HandshakeFailures.WithLabelValues("cluster").Inc()
		klog.Background().Info("Agent refused", "cluster", p.cluster, "message", err.Error())
		return &HandshakeError{err}
	}
	return nil
}

// track registers conn, so that it ends with the cluster. A cluster that stopped
// being served before conn was registered is noticed here, one that stops later by
// evict.
func (p *pool) track(conn net.Conn) (*pooledConn, error) {
	c := &pooledConn{Conn: conn, pool: p}
	if err := p.register(c); err != nil {
		_ = conn.Close()
		return nil, err
	}
	if err := p.client.options.Admission.Served(p.cluster); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (p *pool) register(c *pooledConn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return net.ErrClosed
	}
	p.conns[c] = struct{}{}
	p.client.options.Metrics.Connections.Inc()
	return nil
}

// pooledConn knows which pool it belongs to.
type pooledConn struct {
	net.Conn
	pool *pool
	once sync.Once
	// certificate is the agent's; nil if there is none, and once it was found not
	// to be good any more. Under the pool's mu.
	certificate *pki.Certificate
}

func (c *pooledConn) Close() error {
	c.once.Do(func() {
		c.pool.mu.Lock()
		delete(c.pool.conns, c)
		c.pool.presence.there = time.Now()
		c.pool.mu.Unlock()
		c.pool.client.options.Metrics.Connections.Dec()
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
