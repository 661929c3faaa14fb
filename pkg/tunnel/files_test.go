package tunnel_test

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel/tunneltest"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

func TestFromFiles(t *testing.T) {
	dir, hubCA, foreignCA := t.TempDir(), pkitest.NewCA(t, "hub"), pkitest.NewCA(t, "foreign")
	loopback := pki.Leaf{CommonName: "server", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true}
	client := pki.Leaf{CommonName: "client", Client: true}
	config := pkitest.NewReloader(t, hubCA, loopback, hubCA).ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{"h2"}
	hub := tunneltest.StartTLS(t, config)
	good := pkitest.Issue(t, filepath.Join(dir, "good"), hubCA, client, hubCA)
	foreign := pkitest.Issue(t, filepath.Join(dir, "foreign"), foreignCA, client, foreignCA)
	for _, tc := range []struct {
		name  string
		files pki.Files
		want  tunnel.Code
	}{
		{"trusted", good, tunnel.NoAgent},
		{"server not trusted", pki.Files{CA: foreign.CA, Cert: good.Cert, Key: good.Key}, tunnel.NoProxyServer},
		{"client not trusted", pki.Files{CA: good.CA, Cert: foreign.Cert, Key: foreign.Key}, tunnel.NoProxyServer},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dialer, err := tunnel.FromFiles(hub.Address(), tc.files.CA, tc.files.Cert, tc.files.Key)
			if err != nil {
				t.Fatal(err)
			}
			defer dialer.Close()
			if _, err := dialer.DialContext(t.Context(), "tcp", target); tunnel.CodeOf(err) != tc.want {
				t.Errorf("%v, want code %s", err, tc.want)
			}
		})
	}
	t.Run("files changed", func(t *testing.T) {
		changing := pkitest.Issue(t, filepath.Join(dir, "changing"), foreignCA, client, foreignCA)
		dialer, err := tunnel.FromFiles(hub.Address(), good.CA, changing.Cert, changing.Key)
		if err != nil {
			t.Fatal(err)
		}
		defer dialer.Close()
		if _, err := dialer.DialContext(t.Context(), "tcp", target); tunnel.CodeOf(err) != tunnel.NoProxyServer {
			t.Errorf("%v, want code NoProxyServer", err)
		}
		for from, to := range map[string]string{good.Cert: changing.Cert, good.Key: changing.Key} {
			data, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		// The next attempt comes after a moment of back-off.
		deadline := time.Now().Add(10 * time.Second)
		for err = nil; tunnel.CodeOf(err) != tunnel.NoAgent; {
			if time.Now().After(deadline) {
				t.Fatalf("the new certificate was not used: %v", err)
			}
			_, err = dialer.DialContext(t.Context(), "tcp", target)
		}
	})
	t.Run("no such file", func(t *testing.T) {
		if _, err := tunnel.FromFiles(hub.Address(), "/no/ca.crt", good.Cert, good.Key); err == nil {
			t.Error("no error")
		}
	})
}
