package proxyapi

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

const (
	// connectTimeout bounds a dial through the tunnel with its TLS handshake.
	connectTimeout = 15 * time.Second
	// idleTimeout is when an unused connection to an agent is given up.
	idleTimeout = 5 * time.Minute
	// spread is how many HTTP/2 connections requests of one cluster have before
	// they share them for good, and perConnection how many share one: their windows
	// together are less than that of the connection, 1 GiB.
	spread, perConnection = 8, 250
	// watchesPerConnection share one: they are silent most of the time.
	watchesPerConnection = 100
	// watchWindow is less than others have, because a user may have thousands of
	// watches.
	watchWindow = 256 << 10
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
	// admission is set before the first request.
	admission admission

	mu       sync.Mutex
	clusters map[string]*agent
}

// admission says which clusters may be served, and whose agent a certificate
// belongs to.
type admission interface {
	Served(cluster string) error
	Admit(agent pki.Agent) error
}

func newPool(dial dialContext, tlsConfig func(string) *tls.Config, m *metrics) *pool {
	return &pool{dial: dial, tlsConfig: tlsConfig, metrics: m, clusters: map[string]*agent{}}
}

// agent is one cluster's part of the pool.
type agent struct {
	pool     *pool
	cluster  string
	reads    *httprelay.ReadPool
	upgrades *http.Transport

	mu       sync.Mutex // reads, requests and below
	gone     bool
	conns    map[*pooledConn]struct{}
	requests *generation
	turned   time.Time // when requests was replaced
}

// generation is the connections for requests until the agent wants new ones.
// Watches have their own: they stay, and hold less unread.
type generation struct{ requests, watches *httprelay.Shared }

// agent gives the transports for a cluster. They never connect to any other.
func (p *pool) agent(cluster string) *agent {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, ok := p.clusters[cluster]; ok {
		return a
	}
	a := &agent{pool: p, cluster: cluster, conns: map[*pooledConn]struct{}{}}
	a.requests = a.newGeneration()
	a.reads = a.newKept()
	a.upgrades = &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return a.connect(ctx, "http/1.1")
		},
		DisableCompression: true,
		// A connection is for one upgrade. After one that was refused it could be
		// used again, and net/http repeats what breaks on a used connection: an exec
		// by WebSocket is a GET.
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: httprelay.MaxHeaderBytes,
		Protocols:              new(http.Protocols),
	}
	a.upgrades.Protocols.SetHTTP1(true)
	p.clusters[cluster] = a
	p.metrics.clusters.Set(float64(len(p.clusters)))
	return a
}

func (a *agent) newKept() *httprelay.ReadPool {
	return &httprelay.ReadPool{
		Dial: func(ctx context.Context) (net.Conn, error) { return a.connect(ctx, "http/1.1") },
		Most: maxKept, IdleTimeout: keptIdle,
	}
}

func (a *agent) kept() *httprelay.ReadPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reads
}

func (a *agent) newGeneration() *generation {
	dial := func(ctx context.Context) (net.Conn, error) { return a.connect(ctx, "h2") }
	return &generation{
		requests: &httprelay.Shared{Dial: dial, Spread: spread, Streams: perConnection, IdleTimeout: idleTimeout},
		watches:  &httprelay.Shared{Dial: dial, Spread: 1, Streams: watchesPerConnection, Window: watchWindow, IdleTimeout: idleTimeout},
	}
}

// send sends a request that is no upgrade. An agent that is about to stop,
// or knows that the proxy server on the way is, says so in its answer: what
// comes later takes new connections, and the old ones end with their requests.
func (a *agent) send(by func(*generation) (*http.Response, error)) (*http.Response, error) {
	a.mu.Lock()
	g := a.requests
	a.mu.Unlock()
	resp, err := by(g)
	if err != nil {
		return nil, err
	}
	if resp.Header.Get(agentapi.Leaving) != "" {
		resp.Header.Del(agentapi.Leaving)
		a.turn(g)
	}
	return resp, nil
}

func (a *agent) roundTrip(r *http.Request) (*http.Response, error) {
	return a.send(func(g *generation) (*http.Response, error) { return g.requests.RoundTrip(r) })
}

func (a *agent) watch(r *http.Request) (*http.Response, error) {
	return a.send(func(g *generation) (*http.Response, error) { return g.watches.RoundTrip(r) })
}

// read may send a request twice.
func (a *agent) read(r *http.Request) (*http.Response, error) {
	other := func(r *http.Request) (*http.Response, error) {
		return a.send(func(g *generation) (*http.Response, error) { return g.requests.RoundTripRead(r) })
	}
	kept := a.kept()
	return kept.Or(kept.RoundTrip, other, r)
}

func (a *agent) turn(old *generation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone || a.requests != old || time.Since(a.turned) < turnTime {
		return
	}
	a.requests, a.turned = a.newGeneration(), time.Now()
	old.retire()
}

// retire closes connections as they become unused.
func (g *generation) retire() {
	g.requests.Retire()
	g.watches.Retire()
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
func (a *agent) connect(ctx context.Context, protocol string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	start := time.Now()
	host := identity.HandlerHost(a.cluster)
	raw, err := a.pool.dial(ctx, "tcp", net.JoinHostPort(host, identity.HandlerPort))
	a.pool.metrics.observeDial(err)
	if err != nil {
		return nil, err
	}
	conn, err := a.track(raw)
	if err != nil {
		return nil, err
	}
	config := a.pool.tlsConfig(host)
	config.NextProtos = []string{protocol}
	secure := tls.Client(connect.BelowTLS(conn), config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error is the one that matters
		return nil, a.pool.metrics.noteAgentTLS(a.cluster, err)
	}
	if err := a.admit(conn, secure.ConnectionState()); err != nil {
		_ = conn.Close()
		return nil, err
	}
	a.pool.metrics.connect.Observe(time.Since(start).Seconds())
	return secure, nil
}

// admit compares the agent's certificate with the ManagedCluster that has its
// cluster's name now.
func (a *agent) admit(conn *pooledConn, state tls.ConnectionState) error {
	peer, err := pki.PeerAgent(state)
	if err != nil {
		return a.pool.metrics.noteAgentTLS(a.cluster, err)
	}
	certificate, err := pki.PeerCertificate(state)
	if err != nil {
		return a.pool.metrics.noteAgentTLS(a.cluster, err)
	}
	a.mu.Lock()
	conn.certificate = certificate
	a.mu.Unlock()
	if err := a.pool.admission.Admit(peer); err != nil {
		a.pool.metrics.agentTLSFailures.WithLabelValues("cluster").Inc()
		klog.Background().Info("Agent refused", "cluster", a.cluster, "err", err.Error())
		return &handshakeError{err}
	}
	return nil
}

// connectAPIServer dials a cluster's kube-apiserver for somebody who speaks TLS
// with it himself.
func (p *pool) connectAPIServer(ctx context.Context, cluster string) (net.Conn, error) {
	raw, err := p.dial(ctx, "tcp", net.JoinHostPort(cluster, "443"))
	p.metrics.observeDial(err)
	if err != nil {
		return nil, err
	}
	return p.agent(cluster).track(raw)
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

// track registers conn, so that it ends with the cluster. A cluster that stopped
// being served before conn was registered is noticed here, one that stops later by
// evict.
func (a *agent) track(conn net.Conn) (*pooledConn, error) {
	c := &pooledConn{Conn: conn, agent: a}
	if err := a.register(c); err != nil {
		_ = conn.Close()
		return nil, err
	}
	if err := a.pool.admission.Served(a.cluster); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (a *agent) register(c *pooledConn) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return net.ErrClosed
	}
	a.conns[c] = struct{}{}
	a.pool.metrics.connections.Inc()
	return nil
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
	requests.retire()
	for _, c := range conns {
		connect.Abort(c)
	}
}

// pooledConn knows whom it belongs to.
type pooledConn struct {
	net.Conn
	agent *agent
	once  sync.Once
	// certificate is the agent's; nil if there is none, and once it was found not
	// to be good any more. Under the agent's mu.
	certificate *pki.Certificate
}

func (c *pooledConn) Close() error {
	c.once.Do(func() {
		c.agent.mu.Lock()
		delete(c.agent.conns, c)
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
