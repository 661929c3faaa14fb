package agentclient

import (
	"context"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// Client sends requests to the agents of managed clusters. Its methods are safe for
// concurrent use.
type Client struct {
	options Options

	mu    sync.Mutex
	pools map[string]*pool // by cluster

	// withoutServer is when a dial last found no proxy server, in nanoseconds since 1970.
	withoutServer atomic.Int64
}

// New makes a Client. It does no I/O.
func New(o Options) *Client { return &Client{options: o, pools: map[string]*pool{}} }

// RoundTrip sends a request to a cluster. The request's URL needs a path and a query
// only. Unlike an http.RoundTripper it changes the request's URL and headers. The error
// is for StatusOf.
func (c *Client) RoundTrip(r *http.Request, to Target, as Identity) (*http.Response, error) {
	if err := SetHeaders(r, to, as); err != nil {
		return nil, err
	}
	r.URL.Scheme, r.URL.Host = "https", net.JoinHostPort(identity.HandlerHost(to.Cluster), identity.HandlerPort)
	r.Host = r.URL.Host
	p := c.pool(to.Cluster)
	switch {
	case httprelay.IsUpgrade(r.Header):
		return p.upgrades.RoundTrip(r)
	case to.Kind == Watch:
		return p.watch(r)
	case to.Kind == Stream || !httprelay.Fits(r):
		return p.roundTrip(r)
	case to.Kind == Discovery:
		return p.discover(r)
	}
	return p.read(r)
}

// pool returns the transports for a cluster. They never connect to any other.
func (c *Client) pool(cluster string) *pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.pools[cluster]; ok {
		return p
	}
	p := newPool(cluster, &c.options, &c.withoutServer)
	if c.options.Admission.Served(cluster) != nil {
		return p // it makes no connection, and Evict, which would forget it, has been called
	}
	c.pools[cluster] = p
	c.options.Metrics.Clusters.Set(float64(len(c.pools)))
	return p
}

// Connections returns how many connections to a cluster are open.
func (c *Client) Connections(cluster string) int {
	c.mu.Lock()
	p := c.pools[cluster]
	c.mu.Unlock()
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Evict forgets a cluster and ends all its connections.
func (c *Client) Evict(cluster string) {
	c.mu.Lock()
	p := c.pools[cluster]
	delete(c.pools, cluster)
	c.options.Metrics.Clusters.Set(float64(len(c.pools)))
	c.mu.Unlock()
	if p != nil {
		p.close()
	}
}

// Close evicts all clusters.
func (c *Client) Close() {
	c.mu.Lock()
	all := c.pools
	c.pools = map[string]*pool{}
	c.mu.Unlock()
	for _, p := range all {
		p.close()
	}
}

// DialAPIServer connects to a cluster's kube-apiserver, for a client that speaks TLS
// with it.
func (c *Client) DialAPIServer(ctx context.Context, cluster string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	raw, err := c.options.Dial(ctx, "tcp", net.JoinHostPort(cluster, "443"))
	p := c.pool(cluster)
	if err := p.dialed(err); err != nil {
		return nil, err
	}
	return p.track(raw)
}

// DialService has the agent connect to a Service, which it decides about too. The
// agent gets the headers of ask.
func (c *Client) DialService(ctx context.Context, ask *http.Request, to Target, as Identity) (net.Conn, error) {
	if err := SetHeaders(ask, to, as); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := c.pool(to.Cluster).connect(ctx, "http/1.1")
	if err != nil {
		return nil, err
	}
	there, err := connect.Ask(ctx, conn, net.JoinHostPort(identity.HandlerHost(to.Cluster), identity.HandlerPort), ask.Header)
	if err != nil {
		_ = conn.Close() // the error says more
		return nil, refusedByAgent(err)
	}
	return there, nil
}

// recheckInterval is how often the certificates of agents are looked at again.
const recheckInterval = 2 * time.Second

// Recheck moves requests away from connections whose agent has a certificate that a
// handshake would not accept any more, until ctx is done. Requests that are on them
// go on: the proxy server ends the agent's carriers, and these with them, unless the
// agent shows it another certificate.
func (c *Client) Recheck(ctx context.Context, good func(*pki.Certificate) error) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		c.mu.Lock()
		pools := slices.Collect(maps.Values(c.pools))
		c.mu.Unlock()
		for _, p := range pools {
			if err := p.leaveBad(good); err != nil {
				klog.FromContext(ctx).Info("New connections to an agent are made", "cluster", p.cluster, "reason", err.Error())
			}
		}
	}, recheckInterval)
	return nil
}
