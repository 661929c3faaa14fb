package pki

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// filesOf writes a certificate of ca and the bundle of trusted to dir.
func filesOf(t *testing.T, dir string, ca *CA, leaf Leaf, trusted *CA) Files {
	t.Helper()
	return filesAt(t, dir, ca, leaf, trusted, time.Now())
}

// filesAt is filesOf by somebody whose clock says now.
func filesAt(t *testing.T, dir string, ca *CA, leaf Leaf, trusted *CA, now time.Time) Files {
	t.Helper()
	leaf.Validity = time.Hour
	pair, err := ca.Issue(leaf, now)
	if err != nil {
		t.Fatal(err)
	}
	files := Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}
	for path, data := range map[string][]byte{files.Cert: pair.CertPEM, files.Key: pair.KeyPEM, files.CA: trusted.CertPEM()} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func load(t *testing.T, files Files) *Reloader {
	t.Helper()
	source := NewReloader(files)
	if err := source.Load(); err != nil {
		t.Fatal(err)
	}
	return source
}

// handshake exchanges a byte each way, so that session tickets arrive and a
// refused client certificate is noticed, which TLS 1.3 tells only then.
func handshake(t *testing.T, server, client *tls.Config) (clientState, serverState tls.ConnectionState, err error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	states := make(chan tls.ConnectionState, 1)
	go func() {
		defer close(states)
		raw, err := listener.Accept()
		if err != nil {
			return
		}
		defer raw.Close()
		conn := tls.Server(raw, server)
		if conn.Handshake() != nil {
			return
		}
		states <- conn.ConnectionState()
		_, _ = io.CopyN(conn, conn, 1)
	}()
	conn, err := tls.Dial("tcp", listener.Addr().String(), client)
	if err == nil {
		defer conn.Close()
		clientState = conn.ConnectionState()
		if _, err = conn.Write([]byte{1}); err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
	} else {
		_ = listener.Close()
	}
	serverState = <-states
	return clientState, serverState, err
}

func TestReloadOfCertificateAndCA(t *testing.T) {
	old, next := testCA(t, "hub"), testCA(t, "hub")
	serverDir, clientDir := t.TempDir(), t.TempDir()
	serverLeaf := Leaf{CommonName: "server", DNSNames: []string{"server"}, Server: true}
	clientLeaf := Leaf{CommonName: string(identity.RoleClient), Client: true}
	server := load(t, filesOf(t, serverDir, old, serverLeaf, old))
	client := load(t, filesOf(t, clientDir, old, clientLeaf, old))
	config := server.ServerConfig(tls.RequireAndVerifyClientCert)

	_, state, err := handshake(t, config, client.ClientConfig("server"))
	if err != nil {
		t.Fatal(err)
	}
	if role, err := PeerRole(state); err != nil || role != identity.RoleClient {
		t.Errorf("role %q, %v; want %q", role, err, identity.RoleClient)
	}
	if state.Version != tls.VersionTLS13 {
		t.Errorf("TLS version %x, want TLS 1.3", state.Version)
	}
	if state, serverState, err := handshake(t, config, client.ClientConfig("server")); err != nil || !state.DidResume {
		t.Errorf("second handshake: resumed %v, %v", state.DidResume, err)
	} else if role, err := PeerRole(serverState); err != nil || role != identity.RoleClient {
		t.Errorf("role after resumption %q, %v, want %q", role, err, identity.RoleClient)
	}

	// The client trusts the server as before, and still has a session made
	// under the CA for clients that is gone.
	filesOf(t, serverDir, old, serverLeaf, next)
	if err := server.Load(); err != nil {
		t.Fatal(err)
	}
	if state, _, err := handshake(t, config, client.ClientConfig("server")); err == nil || state.DidResume {
		t.Errorf("a client of the old CA is still served: resumed %v, %v", state.DidResume, err)
	}
	filesOf(t, serverDir, next, serverLeaf, next)
	if err := server.Load(); err != nil {
		t.Fatal(err)
	}
	filesOf(t, clientDir, next, clientLeaf, next)
	if err := client.Load(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := handshake(t, config, client.ClientConfig("server")); err != nil {
		t.Errorf("after both reloaded: %v", err)
	}
}

func TestClientsWithoutCAAreRefused(t *testing.T) {
	ca := testCA(t, "hub")
	files := filesOf(t, t.TempDir(), ca, Leaf{CommonName: "s", DNSNames: []string{"s"}, Server: true}, ca)
	files.CA = ""
	// nil would mean the roots of the operating system.
	if config, err := load(t, files).ServerConfig(tls.RequireAndVerifyClientCert).GetConfigForClient(nil); err != nil || config.ClientCAs == nil {
		t.Errorf("no pool for clients, %v", err)
	}
	client := load(t, filesOf(t, t.TempDir(), ca, Leaf{CommonName: string(identity.RoleClient), Client: true}, ca))
	for _, auth := range []tls.ClientAuthType{tls.RequireAndVerifyClientCert, tls.VerifyClientCertIfGiven} {
		if _, _, err := handshake(t, load(t, files).ServerConfig(auth), client.ClientConfig("s")); err == nil {
			t.Errorf("%s: accepted, want an error", auth)
		}
	}
}

func TestUnverifiedCertificatesHaveNoName(t *testing.T) {
	ca := testCA(t, "evil")
	good := testCA(t, "hub")
	server := load(t, filesOf(t, t.TempDir(), good, Leaf{CommonName: "s", DNSNames: []string{"s"}, Server: true}, good))
	for _, commonName := range []string{string(identity.RoleProxyAPI), identity.AgentCommonName("cluster1")} {
		client := load(t, filesOf(t, t.TempDir(), ca, Leaf{CommonName: commonName, Client: true}, good))
		config := client.ClientConfig("s")
		// Shown although the server does not ask for certificates of this CA.
		shown := config.Certificates[0]
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
		_, state, err := handshake(t, server.ServerConfig(tls.RequireAnyClientCert), config)
		if err != nil || len(state.PeerCertificates) == 0 {
			t.Fatal(err)
		}
		if role, err := PeerRole(state); err == nil {
			t.Errorf("role %q, want an error", role)
		}
		if agent, err := PeerAgent(state); err == nil {
			t.Errorf("agent %+v, want an error", agent)
		}
	}
}

func TestNamesOfPeers(t *testing.T) {
	ca := testCA(t, "ca")
	server := load(t, filesOf(t, t.TempDir(), ca, Leaf{CommonName: "s", DNSNames: []string{"s"}, Server: true}, ca))
	for commonName, want := range map[string]struct {
		role    identity.Role
		cluster string
	}{
		string(identity.RolePeer):            {role: identity.RolePeer},
		identity.AgentCommonName("cluster1"): {cluster: "cluster1"},
		"localhost":                          {},
		string(identity.RoleClient) + " ":    {},
	} {
		client := load(t, filesOf(t, t.TempDir(), ca, Leaf{CommonName: commonName, Client: true}, ca))
		_, state, err := handshake(t, server.ServerConfig(tls.RequireAndVerifyClientCert), client.ClientConfig("s"))
		if err != nil {
			t.Fatal(err)
		}
		role, err := PeerRole(state)
		if role != want.role || (err == nil) != (want.role != "") {
			t.Errorf("PeerRole(%q) = %q, %v; want %q", commonName, role, err, want.role)
		}
		agent, err := PeerAgent(state)
		if agent.Cluster != want.cluster || (err == nil) != (want.cluster != "") {
			t.Errorf("PeerAgent(%q) = %+v, %v; want cluster %q", commonName, agent, err, want.cluster)
		}
	}
}

func TestLoadNamesTheFileAndKeepsTheLastGood(t *testing.T) {
	ca := testCA(t, "ca")
	files := filesOf(t, t.TempDir(), ca, Leaf{CommonName: "s", DNSNames: []string{"s"}, Server: true}, ca)
	source := load(t, files)
	for _, path := range []string{files.Cert, files.Key, files.CA} {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, garbage := range []string{"", "garbage"} {
			if err := os.WriteFile(path, []byte(garbage), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := source.Load(); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("Load with %q in %s = %v, want an error that names the file", garbage, filepath.Base(path), err)
			}
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := source.Check(); err != nil {
		t.Errorf("Check = %v, want nil", err)
	}
	if err := NewReloader(files).Check(); err == nil {
		t.Error("a source that never loaded is good")
	}
	if err := NewReloader(Files{CA: filepath.Join(t.TempDir(), "absent")}).Load(); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("Load of an absent file = %v", err)
	}
}

func TestRunReloads(t *testing.T) {
	dir, ca := t.TempDir(), testCA(t, "ca")
	leaf := Leaf{CommonName: "s", DNSNames: []string{"s"}, Server: true}
	source := load(t, filesOf(t, dir, ca, leaf, ca))
	before := source.current.Load()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- source.Run(ctx) }()
		time.Sleep(2 * pollInterval)
		synctest.Wait()
		if source.current.Load() != before {
			t.Error("reloaded without a change")
		}
		pair, err := ca.Issue(Leaf{CommonName: "new", Server: true, Validity: time.Hour}, ca.cert.NotBefore)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "tls.crt"), pair.CertPEM, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pollInterval)
		synctest.Wait()
		if source.current.Load() != before {
			t.Error("a certificate without its key was taken")
		}
		if err := os.WriteFile(filepath.Join(dir, "tls.key"), pair.KeyPEM, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pollInterval)
		synctest.Wait()
		if got := source.current.Load().certificate.Leaf.Subject.CommonName; got != "new" {
			t.Errorf("the certificate is %q, want \"new\"", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestParseTLSParameters(t *testing.T) {
	if p, err := ParseTLSParameters("", nil); err != nil || p.MinVersion != 0 {
		t.Errorf("defaults: %v, %v; want no version", p, err)
	}
	p, err := ParseTLSParameters("VersionTLS12", []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"})
	if err != nil || p.MinVersion != tls.VersionTLS12 || len(p.CipherSuites) != 1 {
		t.Errorf("parameters %v, %v; want TLS 1.2 and one suite", p, err)
	}
	for _, version := range []string{"VersionTLS10", "VersionTLS11", "1.3"} {
		if _, err := ParseTLSParameters(version, nil); err == nil {
			t.Errorf("%s accepted, want an error", version)
		}
	}
	if _, err := ParseTLSParameters("", []string{"TLS_RSA_WITH_RC4_128_SHA"}); err == nil {
		t.Error("RC4 accepted")
	}
	ca := testCA(t, "ca")
	server := load(t, filesOf(t, t.TempDir(), ca, Leaf{CommonName: "s", DNSNames: []string{"s"}, Server: true}, ca))
	old := &tls.Config{RootCAs: load(t, server.files).ClientConfig("s").RootCAs, ServerName: "s", MaxVersion: tls.VersionTLS12}
	if _, _, err := handshake(t, server.ServerConfig(tls.NoClientCert), old); err == nil {
		t.Error("TLS 1.2 by default")
	}
	server = NewReloader(server.files)
	server.TLS = p
	if err := server.Load(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := handshake(t, server.ServerConfig(tls.NoClientCert), old); err != nil {
		t.Errorf("TLS 1.2 when asked: %v", err)
	}
}
