package proxyapi

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"open-cluster-management.io/cluster-proxy/pkg/agentheaders"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/hop"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

const (
	// connectTimeout bounds a dial through the tunnel with its TLS handshake.
	connectTimeout = 15 * time.Second
	// idleTimeout is when an unused connection to an agent is given up.
	idleTimeout = 5 * time.Minute
	// pingAfter and pingTimeout find an agent that died without a word.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
	// maxKept is how many reads of a cluster have a connection of their own at a
	// time; more share one.
	maxKept = 16
	// keptIdle is when an unused one of these is given up.
	keptIdle = time.Minute
	// turnTime is how often at most the connections to an agent are changed for
	// new ones because it says so: those may lead to the same place while the
	// tunnel learns of it.
	turnTime = 2 * time.Second
)

// dialContext is how a connection through the tunnel is made.
type dialContext func(ctx context.Context, network, address string) (net.Conn, error)

// pool keeps connections to the agents' handlers, apart by cluster.
type pool struct {
	dial dialContext
	// tlsConfig gives the configuration for the next handshake with the agent
	// that has a certificate for serverName.
	tlsConfig func(serverName string) *tls.Config
	metrics   *metrics

	mu       sync.Mutex
	clusters map[string]*agent
}

func newPool(dial dialContext, tlsConfig func(string) *tls.Config, m *metrics) *pool {
	return &pool{dial: dial, tlsConfig: tlsConfig, metrics: m, clusters: map[string]*agent{}}
}

// agent is one cluster's part of the pool.
type agent struct {
	pool     *pool
	cluster  string
	reads    *hop.Kept
	upgrades *http.Transport

	mu       sync.Mutex
	gone     bool
	conns    map[*pooledConn]struct{}
	requests *generation
	turned   time.Time // when requests was replaced
}

// generation is the connections for requests until the agent wants new ones.
type generation struct {
	*http2.Transport
	conns int // under the agent's mu
}

// agent gives the transports for a cluster. They never connect to any other.
func (p *pool) agent(cluster string) *agent {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, ok := p.clusters[cluster]; ok {
		return a
	}
	a := &agent{pool: p, cluster: cluster, conns: map[*pooledConn]struct{}{}}
	a.requests = a.newGeneration()
	a.reads = &hop.Kept{
		Dial: func(ctx context.Context) (net.Conn, error) { return a.connect(ctx, "http/1.1", nil) },
		Most: maxKept, IdleTimeout: keptIdle,
	}
	a.upgrades = &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return a.connect(ctx, "http/1.1", nil)
		},
		DisableCompression: true,
		IdleConnTimeout:    idleTimeout,
		Protocols:          new(http.Protocols),
	}
	a.upgrades.Protocols.SetHTTP1(true)
	p.clusters[cluster] = a
	p.metrics.clusters.Set(float64(len(p.clusters)))
	return a
}

func (a *agent) newGeneration() *generation {
	g := &generation{}
	g.Transport = &http2.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string, _ *tls.Config) (net.Conn, error) {
			conn, err := a.connect(ctx, "h2", g)
			if err != nil && ctx.Err() == nil {
				err = &unconnected{err}
			}
			return conn, err
		},
		DisableCompression: true,
		IdleConnTimeout:    idleTimeout,
		MaxReadFrameSize:   hop.Chunk,
		ReadIdleTimeout:    pingAfter,
		PingTimeout:        pingTimeout,
	}
	return g
}

// roundTrip sends a request that is no upgrade. An agent that is about to stop,
// or knows that the proxy server on the way is, says so in its answer: what
// comes later takes new connections, and the old ones end with their requests.
func (a *agent) roundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	g := a.requests
	a.mu.Unlock()
	resp, err := g.RoundTrip(r)
	if err != nil {
		return nil, broken(r, err)
	}
	if resp.Header.Get(agentheaders.Leaving) != "" {
		resp.Header.Del(agentheaders.Leaving)
		a.turn(g)
	}
	return resp, nil
}

// unconnected is the error of a connection that did not come about. The HTTP/2
// transport does not see what is in it: it takes a timeout for that of the request
// that began to dial, and has every request that waited for the same connection
// dial again, one after the other.
type unconnected struct{ err error }

func (u *unconnected) Error() string { return u.err.Error() }

// broken says of the HTTP/2 transport's error if a connection ended under a
// request. The transport itself sends again what its peer says that it did not
// look at (GOAWAY, REFUSED_STREAM); what is left is an error of the request's own
// stream, of making a connection, of whoever asked, or of a connection that was
// there (RFC 9113, 5.4). A request that cannot be written in HTTP/2 is taken for
// the last, and fails again.
func broken(r *http.Request, err error) error {
	var stream http2.StreamError
	var dial *unconnected
	switch {
	case errors.As(err, &dial):
		return dial.err
	case r.Context().Err() != nil, errors.As(err, &stream):
		return err
	}
	return &hop.Broken{Err: err}
}

func (a *agent) turn(old *generation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone || a.requests != old || time.Since(a.turned) < turnTime {
		return
	}
	a.requests, a.turned = a.newGeneration(), time.Now()
	go a.retire(old)
}

// retire closes connections as they become idle, until there are none.
func (a *agent) retire(old *generation) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		old.CloseIdleConnections()
		a.mu.Lock()
		left := old.conns
		a.mu.Unlock()
		if left == 0 {
			return
		}
		<-tick.C
	}
}

// evict forgets a cluster and ends all its connections.
func (p *pool) evict(cluster string) {
	p.mu.Lock()
	a := p.clusters[cluster]
	delete(p.clusters, cluster)
	p.metrics.clusters.Set(float64(len(p.clusters)))
	p.mu.Unlock()
	if a != nil {
		a.close()
	}
}

// close evicts everything.
func (p *pool) close() {
	p.mu.Lock()
	all := p.clusters
	p.clusters = map[string]*agent{}
	p.mu.Unlock()
	for _, a := range all {
		a.close()
	}
}

// connect dials the agent's handler and makes sure that it is that agent.
func (a *agent) connect(ctx context.Context, protocol string, g *generation) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	start := time.Now()
	host := identity.HandlerHost(a.cluster)
	raw, err := a.pool.dial(ctx, "tcp", net.JoinHostPort(host, identity.HandlerPort))
	a.pool.metrics.observeDial(err)
	if err != nil {
		return nil, err
	}
	conn, err := a.track(raw, g)
	if err != nil {
		return nil, err
	}
	config := a.pool.tlsConfig(host)
	config.NextProtos = []string{protocol}
	secure := tls.Client(connect.BelowTLS(conn), config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error is the one that matters
		return nil, noteAgentTLS(a.cluster, err)
	}
	a.pool.metrics.connect.Observe(time.Since(start).Seconds())
	return secure, nil
}

// connectAPIServer dials a cluster's kube-apiserver for somebody who speaks TLS
// with it himself.
func (p *pool) connectAPIServer(ctx context.Context, cluster string) (net.Conn, error) {
	raw, err := p.dial(ctx, "tcp", net.JoinHostPort(cluster, "443"))
	p.metrics.observeDial(err)
	if err != nil {
		return nil, err
	}
	return p.agent(cluster).track(raw, nil)
}

// connections is how many connections to a cluster there are.
func (p *pool) connections(cluster string) int {
	p.mu.Lock()
	a := p.clusters[cluster]
	p.mu.Unlock()
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.conns)
}

// track registers conn, so that it ends with the cluster. It is of a generation,
// or of none.
func (a *agent) track(conn net.Conn, g *generation) (*pooledConn, error) {
	c := &pooledConn{Conn: conn, agent: a, of: g}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	a.conns[c] = struct{}{}
	if g != nil {
		g.conns++
	}
	a.pool.metrics.connections.Inc()
	return c, nil
}

func (a *agent) close() {
	a.mu.Lock()
	a.gone = true
	conns := make([]*pooledConn, 0, len(a.conns))
	for c := range a.conns {
		conns = append(conns, c)
	}
	requests := a.requests
	a.mu.Unlock()
	a.upgrades.CloseIdleConnections()
	requests.CloseIdleConnections()
	for _, c := range conns {
		connect.Abort(c)
	}
}

// pooledConn knows whom it belongs to.
type pooledConn struct {
	net.Conn
	agent *agent
	of    *generation // nil if it is not for requests
	once  sync.Once
}

func (c *pooledConn) Close() error {
	c.once.Do(func() {
		c.agent.mu.Lock()
		delete(c.agent.conns, c)
		if c.of != nil {
			c.of.conns--
		}
		c.agent.mu.Unlock()
		c.agent.pool.metrics.connections.Dec()
	})
	return c.Conn.Close()
}

// Abort is for connect.Abort.
func (c *pooledConn) Abort(error) {
	connect.Abort(c.Conn)
	_ = c.Close()
}

// CloseWrite says that this side has no more to send.
func (c *pooledConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
