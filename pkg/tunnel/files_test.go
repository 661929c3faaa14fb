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
)

// authority writes what a CA issues to files of a directory.
type authority struct {
	ca  *pki.CA
	dir string
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	pair, err := pki.NewCA("hub", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.ParseCA(pair)
	if err != nil {
		t.Fatal(err)
	}
	return authority{ca, t.TempDir()}
}

func (a authority) issue(t *testing.T, name string, leaf pki.Leaf) pki.Files {
	t.Helper()
	leaf.CommonName, leaf.Validity = name, time.Hour
	pair, err := a.ca.Issue(leaf, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	files := pki.Files{Cert: filepath.Join(a.dir, name+".crt"), Key: filepath.Join(a.dir, name+".key"), CA: filepath.Join(a.dir, "ca.crt")}
	for path, data := range map[string][]byte{files.Cert: pair.CertPEM, files.Key: pair.KeyPEM, files.CA: a.ca.CertPEM()} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func TestFromFiles(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	source := pki.NewSource(ours.issue(t, "server", pki.Leaf{IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true}))
	if err := source.Load(); err != nil {
		t.Fatal(err)
	}
	config := source.ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{"h2"}
	hub := tunneltest.StartTLS(t, config)
	good := ours.issue(t, "client", pki.Leaf{Client: true})
	foreign := theirs.issue(t, "client", pki.Leaf{Client: true})
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
		changing := theirs.issue(t, "changing", pki.Leaf{Client: true})
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
