package agentclient

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// Target is where a request goes.
type Target struct {
	Cluster string
	// Service is a Service of the cluster; the zero value is its kube-apiserver.
	Service agentapi.Service
	// AgentMetrics is the agent itself, which answers with its metrics.
	AgentMetrics bool
	Kind         Kind
}

// Kind decides which connections a request shares with others.
type Kind int

const (
	// Request has a natural end.
	Request Kind = iota
	// Watch is a watch of the Kubernetes API.
	Watch
	// Stream is any other request without a natural end: logs, exec, Services.
	Stream
	// Discovery is a read with a small answer, one of some that are sent to many clusters at the
	// same time. It leads to no connection beside others.
	Discovery
)

// Identity says as which user a request is sent. The zero value is refused.
type Identity struct {
	// User is asserted to the agent, which impersonates it. Credentials in the request
	// are then deleted.
	User user.Info
	// PassThrough, without a User, sends the request as it is, with its credentials:
	// the cluster knows the caller, and the hub does not.
	PassThrough bool
	// ServiceAuthorization becomes the Authorization of a request to a Service, if it
	// is not empty.
	ServiceAuthorization string
}

// Admission says which clusters may be served, and whose agent a certificate belongs to.
type Admission interface {
	Served(cluster string) error
	Admit(agent pki.Agent) error
}

// Metrics are what a Client counts. All fields must be set.
type Metrics struct {
	// Dials counts dials through the tunnel, by result.
	Dials *prometheus.CounterVec
	// HandshakeFailures counts TLS handshakes with agents that failed, by reason.
	HandshakeFailures *prometheus.CounterVec
	// Connect observes the seconds of a dial and the TLS handshake with the agent.
	Connect prometheus.Observer
	// Connections are those to agents that are open, and Clusters the clusters that
	// have a pool.
	Connections, Clusters prometheus.Gauge
}

// Options configure a Client. All fields must be set.
type Options struct {
	// Dial makes a connection through the tunnel.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS returns the configuration for the next handshake with the agent that has a
	// certificate for serverName.
	TLS       func(serverName string) *tls.Config
	Admission Admission
	Metrics   Metrics
}

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
	p := newPool(c, cluster)
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

func (c *Client) observeDial(err error) {
	result := "Connected"
	if err != nil {
		if result = string(tunnel.CodeOf(err)); result == "" {
			result = "Failed"
		}
	}
	c.options.Metrics.Dials.WithLabelValues(result).Inc()
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
