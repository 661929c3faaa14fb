package apihandler

import (
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/idlestreams"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

func TestIdleStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := idlestreams.Network{}
		serve := func(server *http.Server, l net.Listener) {
			done := make(chan struct{})
			go func() { defer close(done); _ = server.ServeTLS(l, "", "") }()
			t.Cleanup(func() { _ = server.Close(); <-done })
		}
		hubCA, agentCA, clusterCA := pkitest.NewCA(t, "hub"), pkitest.NewCA(t, "agents"), pkitest.NewCA(t, "cluster")
		config := pkitest.NewReloader(t, clusterCA, pki.Leaf{CommonName: "kube-apiserver", DNSNames: []string{"kubernetes"}, Server: true}, clusterCA).ServerConfig(tls.NoClientCert)
		config.NextProtos = []string{"h2", "http/1.1"}
		serve(&http.Server{Handler: idlestreams.Server(t), TLSConfig: config}, network.Listen("kubernetes:443"))
		host := identity.HandlerHost("cluster1")
		source := pkitest.NewReloader(t, agentCA, pki.Leaf{CommonName: identity.AgentCommonName("cluster1"), DNSNames: []string{host}, Server: true}, hubCA)
		handler, err := NewServer(&rest.Config{Host: "https://kubernetes", Dial: network.Dial, TLSClientConfig: rest.TLSClientConfig{CAData: clusterCA.CertPEM()}}, dial.TCP{}, source, Services{}, Access{}, Metrics{Registry: prometheus.NewRegistry(), Agent: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		serve(handler, network.Listen("handler"))
		client := pkitest.NewReloader(t, hubCA, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true}, agentCA)
		idlestreams.Check(t, network, "handler", "", client.ClientConfig(host))
	})
}
