package agentclient

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
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
