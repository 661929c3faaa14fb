package suite

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// ThroughDialer is a configuration that reaches a managed kube-apiserver with
// TLS end to end, over conns that dial gives.
func (s *Suite) ThroughDialer(cluster string, dial func(ctx context.Context, network, address string) (net.Conn, error)) *rest.Config {
	cfg := s.Direct(cluster)
	cfg.Host = "https://" + cluster
	cfg.TLSClientConfig.ServerName = "kubernetes.default.svc"
	cfg.Dial = dial
	return cfg
}

// Direct reaches a managed kube-apiserver with the administrator's token and
// without the addon.
func (s *Suite) Direct(cluster string) *rest.Config {
	admin := s.admin[cluster]
	return &rest.Config{Host: admin.Host, BearerToken: s.AdminToken[cluster], TLSClientConfig: rest.TLSClientConfig{CAData: s.ClusterCA(cluster)}, QPS: -1}
}

// ThroughProxyAPI reaches a cluster as its users do, with the same token.
func (s *Suite) ThroughProxyAPI(cluster string) *rest.Config {
	return &rest.Config{Host: "https://" + s.ProxyAPI + "/" + cluster, BearerToken: s.AdminToken[cluster], TLSClientConfig: rest.TLSClientConfig{CAData: s.HubCA}, QPS: -1}
}

// ClusterCA is that of a managed kube-apiserver.
func (s *Suite) ClusterCA(cluster string) []byte {
	cfg := s.AdminConfig(cluster)
	if err := rest.LoadTLSFiles(cfg); err != nil {
		panic(err)
	}
	return cfg.CAData
}

// clientFiles writes the client certificate of Secret proxy-client to files, as
// a Go program in a pod would find them.
func (s *Suite) clientFiles(t *testing.T) (ca, cert, key string) {
	t.Helper()
	secret, err := s.Hub.CoreV1().Secrets(s.Namespace).Get(t.Context(), "proxy-client", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ca, cert, key = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for file, data := range map[string][]byte{ca: s.HubCA, cert: secret.Data["tls.crt"], key: secret.Data["tls.key"]} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return ca, cert, key
}

// ClientTLS is what a Go program in a pod of the hub has for the proxy server.
func (s *Suite) ClientTLS(t *testing.T) *tls.Config {
	t.Helper()
	ca, cert, key := s.clientFiles(t)
	host, _, err := net.SplitHostPort(s.ProxyServer)
	if err != nil {
		t.Fatal(err)
	}
	return pkitest.Load(t, pki.Files{Cert: cert, Key: key, CA: ca}).ClientConfig(host)
}

// Dialer is a Go program's dialer, which ends with the test.
func (s *Suite) Dialer(t *testing.T) *tunnel.Dialer {
	t.Helper()
	ca, cert, key := s.clientFiles(t)
	dialer, err := tunnel.FromFiles(s.ProxyServer, ca, cert, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialer.Close() })
	return dialer
}

// Endpoint is a way to a cluster's kube-apiserver, with a user who may do everything
// there.
type Endpoint struct {
	Name string
	Cfg  *rest.Config
}

// Endpoints are all ways: straight; through the proxy API with a token of the
// cluster, and with one of the hub; and through the hub's own kube-apiserver.
func (s *Suite) Endpoints(cluster string) []Endpoint {
	hubUser := s.ThroughProxyAPI(cluster)
	hubUser.BearerToken = s.HubToken
	return []Endpoint{
		{"direct", s.Direct(cluster)},
		{"proxy-api", s.ThroughProxyAPI(cluster)},
		{"hub-user", hubUser},
		{"aggregated", s.aggregated("clusters/"+cluster, s.HubToken)},
	}
}

// aggregated is the way to a cluster or a view by the hub's own kube-apiserver.
func (s *Suite) aggregated(to, token string) *rest.Config {
	cfg := rest.AnonymousClientConfig(s.hub)
	cfg.Host, cfg.BearerToken = s.hub.Host+"/apis/"+proxyGroup+"/v1alpha1/"+to+"/proxy", token
	return cfg
}

// ForEachEndpoint runs a scenario on every managed cluster, straight and through
// every endpoint of the hub.
func (s *Suite) ForEachEndpoint(t *testing.T, scenario func(t *testing.T, cluster string, cfg *rest.Config)) {
	t.Helper()
	for _, cluster := range s.Clusters {
		for _, endpoint := range s.Endpoints(cluster) {
			t.Run(cluster+"/"+endpoint.Name, func(t *testing.T) { scenario(t, cluster, endpoint.Cfg) })
		}
	}
}
