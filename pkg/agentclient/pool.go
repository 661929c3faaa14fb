package agentclient

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

const (
	// idleTimeout is when an unused connection to an agent is given up.
	idleTimeout = 5 * time.Minute
	// SharedConns is how many HTTP/2 connections requests of one cluster have before
	// they share them for good, and perConnection how many share one: their windows
	// together are less than that of the connection, 1 GiB.
	SharedConns, perConnection = 8, 250
	// watchesPerConnection share one: they are silent most of the time.
	watchesPerConnection = 100
	// WatchWindow is how much of a watch may be unread. Others have more, because a
	// user may have thousands of watches.
	WatchWindow = 256 << 10
	// ReadConns is how many reads of a cluster have a connection of their own at a
	// time; more share one.
	ReadConns = 16
	// readIdleTimeout is when an unused one of these is given up.
	readIdleTimeout = time.Minute
	// replaceInterval is the minimum time between two replacements of an agent's
	// connections at its request: the new ones may lead to the same place until the
	// tunnel has noticed.
	replaceInterval = 2 * time.Second
)

// pool keeps the connections to the agent of one cluster for requests.
type pool struct {
	connections
	upgrades *http.Transport

	// Under the mu of connections.
	reads    *httprelay.ReadPool
	requests *connGroup
	replaced time.Time // when requests was replaced
	later    bool      // requests is to be replaced again
}

// connGroup is the connections for requests until the agent wants new ones. Watches
// have their own: they stay, and hold less unread. It does what connrotation of
// client-go does, but lets requests end that are under way.
type connGroup struct{ requests, watches *httprelay.Shared }

func newPool(cluster string, o *Options, withoutServer *atomic.Int64) *pool {
	p := &pool{connections: connections{cluster: cluster, options: o, withoutServer: withoutServer, conns: map[*pooledConn]struct{}{}}}
	p.requests, p.reads = p.newConnGroup(), p.newReadPool()
	p.upgrades = &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return p.connect(ctx, "http/1.1")
		},
		DisableCompression: true,
		// Each upgrade needs a new connection. After a refused upgrade net/http could
		// use the connection again, and it repeats a request that breaks on a used
		// connection: an exec by WebSocket is a GET.
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: httprelay.MaxHeaderBytes,
		Protocols:              new(http.Protocols),
	}
	p.upgrades.Protocols.SetHTTP1(true)
	return p
}

func (p *pool) newReadPool() *httprelay.ReadPool {
	return &httprelay.ReadPool{
		Dial: func(ctx context.Context) (net.Conn, error) { return p.connect(ctx, "http/1.1") },
		Most: ReadConns, IdleTimeout: readIdleTimeout,
		Alive: p.alive,
	}
}

// alive reports whether there is no evidence that a connection for reads is dead, from which
// nothing has come since heard: its own transport's, which ends at a proxy server, or that of
// the agent's other connections, one of which does not answer.
func (p *pool) alive(conn net.Conn, heard time.Time) bool {
	p.mu.Lock()
	g := p.requests
	p.mu.Unlock()
	return httprelay.Acknowledges(func() bool { return isUnacknowledged(conn) }) && g.requests.Alive(heard) && g.watches.Alive(heard)
}

func (p *pool) readPool() *httprelay.ReadPool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reads
}

func (p *pool) newConnGroup() *connGroup {
	dial := func(ctx context.Context) (net.Conn, error) { return p.connect(ctx, "h2") }
	return &connGroup{
		requests: &httprelay.Shared{Dial: dial, Spread: SharedConns, Streams: perConnection, IdleTimeout: idleTimeout},
		watches:  &httprelay.Shared{Dial: dial, Spread: 1, Streams: watchesPerConnection, Window: WatchWindow, IdleTimeout: idleTimeout},
	}
}

// send sends a request that is no upgrade. An agent that is about to stop,
// or knows that the proxy server on the way is, says so in its answer: what
// comes later takes new connections, and the old ones end with their requests.
func (p *pool) send(by func(*connGroup) (*http.Response, error)) (*http.Response, error) {
	p.mu.Lock()
	g := p.requests
	p.mu.Unlock()
	resp, err := by(g)
	if err != nil {
		return nil, err
	}
	if resp.Header.Get(agentapi.Leaving) != "" {
		resp.Header.Del(agentapi.Leaving)
		p.replace(g)
	}
	return resp, nil
}

func (p *pool) roundTrip(r *http.Request) (*http.Response, error) {
	return p.send(func(g *connGroup) (*http.Response, error) { return g.requests.RoundTrip(r) })
}

func (p *pool) watch(r *http.Request) (*http.Response, error) {
	return p.twice(r, func(g *connGroup) (*http.Response, error) { return g.watches.RoundTrip(r) })
}

func (p *pool) discover(r *http.Request) (*http.Response, error) {
	return p.twice(r, func(g *connGroup) (*http.Response, error) { return g.requests.RoundTripSmall(r) })
}

// twice sends a request that only reads, and sends it again if its connection ended before the
// answer. An agent ends those whose client took long to begin, on a machine that has too much
// to do.
func (p *pool) twice(r *http.Request, by func(*connGroup) (*http.Response, error)) (*http.Response, error) {
	resp, err := p.send(by)
	if errors.As(err, new(*httprelay.Broken)) && r.Context().Err() == nil && (r.Body == nil || r.Body == http.NoBody) {
		return p.send(by)
	}
	return resp, err
}

// read may send a request twice.
func (p *pool) read(r *http.Request) (*http.Response, error) {
	other := func(r *http.Request) (*http.Response, error) {
		return p.send(func(g *connGroup) (*http.Response, error) { return g.requests.RoundTripRead(r) })
	}
	reads := p.readPool()
	return reads.RoundTripOr(reads.RoundTrip, other, r)
}

// replace gives up a group of connections, now or when the one before it is old enough:
// one that leads to an agent that is about to stop may be unused for the rest of the
// agent's time, and then be used at its end.
func (p *pool) replace(old *connGroup) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone || p.requests != old || p.later {
		return
	}
	if early := replaceInterval - time.Since(p.replaced); early > 0 {
		p.later = true
		time.AfterFunc(early, func() {
			p.mu.Lock()
			p.later = false
			p.mu.Unlock()
			p.replace(old)
		})
		return
	}
	p.requests, p.replaced = p.newConnGroup(), time.Now()
	old.retire()
}

// retire closes connections as they become unused.
func (g *connGroup) retire() {
	g.requests.Retire()
	g.watches.Retire()
}

// close ends all connections, with the requests on them.
func (p *pool) close() {
	p.mu.Lock()
	p.gone = true
	conns := make([]*pooledConn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	requests := p.requests
	p.mu.Unlock()
	p.upgrades.CloseIdleConnections()
	requests.retire()
	for _, c := range conns {
		connect.Abort(c)
	}
}

// leaveBad has the next requests make connections of their own if the certificate
// of one that they could use is not good, and says why.
func (p *pool) leaveBad(good func(*pki.Certificate) error) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if c.certificate == nil {
			continue
		}
		if bad := good(c.certificate); bad != nil {
			c.certificate = nil
			err = bad
		}
	}
	if err == nil || p.gone {
		return nil
	}
	old := p.requests
	p.requests, p.reads = p.newConnGroup(), p.newReadPool()
	p.upgrades.CloseIdleConnections()
	old.retire()
	return err
}
