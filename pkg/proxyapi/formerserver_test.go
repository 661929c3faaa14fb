package proxyapi

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// TestNotReadyBeforeUpstreamsProxyServer wants a proxy API not to take requests as
// long as only upstream's proxy servers answer, which serve upstream's agents; to be
// ready for good as soon as one of this release did; and to use those at the next
// address until then.
func TestNotReadyBeforeUpstreamsProxyServer(t *testing.T) {
	ca := pkitest.NewCA(t, "hub")
	server := pkitest.NewReloader(t, ca, pki.Leaf{CommonName: "server", DNSNames: []string{"localhost"}, Server: true}, ca)
	client := pkitest.NewReloader(t, ca, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true}, ca)
	listen := func(protocols ...string) string {
		config := server.ServerConfig(tls.RequireAndVerifyClientCert)
		config.NextProtos = protocols
		listener, err := tls.Listen("tcp", "localhost:0", config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					_, _ = conn.Read(make([]byte, 1))
				}()
			}
		}()
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		return net.JoinHostPort("localhost", port)
	}
	upstreams, ours := listen("h2"), listen(carrier.ALPN, "h2")
	p := &prober{tlsConfig: func() *tls.Config { return client.ClientConfig("localhost") }, reachable: prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"}), probed: make(chan struct{})}
	if err := p.check(); !errors.Is(err, errNotProbed) {
		t.Errorf("before the first probe: %v, want %v", err, errNotProbed)
	}
	close(p.probed)
	const nowhere = "localhost:1"
	for _, step := range []struct {
		name, address, next string
		want                error
		server              string
	}{
		{"none answers", nowhere, "", nil, nowhere},
		{"upstream's", upstreams, "", errFormer, upstreams},
		{"upstream's, and the next not yet", upstreams, nowhere, errFormer, upstreams},
		{"upstream's, and upstream's next", upstreams, upstreams, errFormer, upstreams},
		{"upstream's, and this release's next", upstreams, ours, nil, ours},
		{"none answers once more", nowhere, ours, nil, ours},
		{"one of this release", ours, nowhere, nil, ours},
		{"upstream's again", upstreams, nowhere, nil, upstreams},
	} {
		p.address, p.next = step.address, step.next
		_ = p.look(context.Background())
		if err := p.check(); !errors.Is(err, step.want) || p.server() != step.server {
			t.Errorf("%s: %v, and %s is used, want %v and %s", step.name, err, p.server(), step.want, step.server)
		}
	}
}
