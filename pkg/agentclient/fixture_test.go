package agentclient

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

var (
	cluster1 = Target{Cluster: "cluster1"}
	jane     = Identity{User: &user.DefaultInfo{Name: "jane", Groups: []string{"devs"}}}
)

// everyAgent is the hub of tests that are not about which clusters are served.
type everyAgent struct{}

func (everyAgent) Served(string) error   { return nil }
func (everyAgent) Admit(pki.Agent) error { return nil }

func newMetrics() Metrics {
	vec := func(label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: label}, []string{label})
	}
	gauge := func() prometheus.Gauge { return prometheus.NewGauge(prometheus.GaugeOpts{Name: "gauge"}) }
	return Metrics{Dials: vec("result"), HandshakeFailures: vec("reason"), Connect: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seconds"}),
		Connections: gauge(), Clusters: gauge()}
}

// start returns a Client, and how many handshakes the agent of cluster1, which
// answers with handler, has made.
func start(t *testing.T, handler http.Handler) (*Client, *atomic.Int32) {
	t.Helper()
	dir, hubCA, agentCA := t.TempDir(), pkitest.NewCA(t, "hub"), pkitest.NewCA(t, "agents")
	load := func(name string, ca *pki.CA, leaf pki.Leaf, bundle *pki.CA) *pki.Reloader {
		return pkitest.Load(t, pkitest.Issue(t, filepath.Join(dir, name), ca, leaf, bundle))
	}
	agent := load("agent", agentCA, pki.Leaf{CommonName: identity.AgentCommonName("cluster1"), Organizations: identity.AgentOrganizations("cluster1"),
		DNSNames: []string{identity.HandlerHost("cluster1")}, Server: true}, hubCA)
	config := agent.ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{"h2", "http/1.1"}
	var handshakes atomic.Int32
	server := &http.Server{Handler: handler, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0), ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			handshakes.Add(1)
		}
	}}
	if err := httprelay.ConfigureServer(server, 1000); err != nil { // as agents do
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if want := net.JoinHostPort(identity.HandlerHost("cluster1"), identity.HandlerPort); address != want {
			t.Errorf("dialed %q, want %q", address, want)
		}
		return (&net.Dialer{}).DialContext(ctx, network, listener.Addr().String())
	}
	own := load("client", hubCA, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true}, agentCA)
	client := New(Options{Dial: dial, TLS: own.ClientConfig, Admission: everyAgent{}, Metrics: newMetrics()})
	t.Cleanup(func() {
		client.Close()
		_ = server.Close()
	})
	return client, &handshakes
}
