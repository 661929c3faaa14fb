package hostile

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// testPeerPort shows the port with which replicas of the proxy API ask each other each
// certificate but theirs.
func (s *Suite) testPeerPort(t *testing.T) {
	address, err := s.Lab.ServiceAddress("hub", s.Namespace, "cluster-proxy-addon-user-peers", identity.ProxyAPIPeerPort)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(t *testing.T, pair pki.KeyPair) (int, error) {
		t.Helper()
		config := clientTLS(t, pair, s.hubCA, identity.ProxyAPIPeerHost)
		// An honest client would see that the server does not want this one.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &config.Certificates[0], nil }
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		response, err := client.Post("https://"+address+"/positions", "", strings.NewReader("nonsense"))
		if err != nil {
			return 0, err
		}
		defer response.Body.Close()
		return response.StatusCode, nil
	}
	for name, secret := range map[string]string{"client": "proxy-client", "proxy server": "proxy-server"} {
		t.Run(name, func(t *testing.T) {
			n := s.watch(t, proxyAPI, `cluster_proxy_api_requests_rejected_total{reason="peer"}`)
			if code, err := ask(t, s.pairOf(t, secret)); err != nil || code != http.StatusForbidden {
				t.Errorf("got %d, %v, want 403", code, err)
			}
			n.check(t, 1, "Refused what is no replica of the proxy API", "from=")
		})
	}
	t.Run("agent", func(t *testing.T) {
		if code, err := ask(t, s.agentCertificate(t, s.attacker())); err == nil || !strings.Contains(err.Error(), "tls") {
			t.Errorf("got %d, %v, want no handshake", code, err)
		}
	})
	t.Run("replica", func(t *testing.T) {
		// The port answers those that it is for: this is not a message, and names no replica.
		if code, err := ask(t, s.pairOf(t, "cluster-proxy-api-client")); err != nil || code != http.StatusMisdirectedRequest {
			t.Errorf("got %d, %v, want 421", code, err)
		}
	})
}
