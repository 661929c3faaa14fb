package carrier

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// transport makes the two ends of a connection.
type transport func(t testing.TB) (dialed, accepted net.Conn)

func pipe(testing.TB) (net.Conn, net.Conn) { return net.Pipe() }

func tcp(t testing.TB) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

var tlsConfigs = sync.OnceValues(func() (client, server *tls.Config) {
	dir, err := os.MkdirTemp("", "carrier")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	now := time.Now()
	root, err := pki.NewCA("carrier test", now, time.Hour)
	if err != nil {
		panic(err)
	}
	ca, err := pki.ParseCA(root)
	if err != nil {
		panic(err)
	}
	leaf, err := ca.Issue(pki.Leaf{CommonName: "x", DNSNames: []string{"localhost"}, Server: true, Client: true, Validity: time.Hour}, now)
	if err != nil {
		panic(err)
	}
	files := pki.Files{Cert: filepath.Join(dir, "c"), Key: filepath.Join(dir, "k"), CA: filepath.Join(dir, "ca")}
	for name, data := range map[string][]byte{files.Cert: leaf.CertPEM, files.Key: leaf.KeyPEM, files.CA: root.CertPEM} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			panic(err)
		}
	}
	source := pki.NewSource(files)
	if err := source.Load(); err != nil {
		panic(err)
	}
	return source.ClientConfig("localhost"), source.ServerConfig(tls.RequireAndVerifyClientCert)
})

func overTLS(t testing.TB) (net.Conn, net.Conn) {
	t.Helper()
	a, b := tcp(t)
	clientConfig, serverConfig := tlsConfigs()
	client, server := tls.Client(a, clientConfig), tls.Server(b, serverConfig)
	failed := make(chan error, 1)
	go func() { failed <- server.Handshake() }()
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	return client, server
}

// ends makes a carrier whose dialed end is the opener.
func ends(t testing.TB, make transport, handler HandlerFunc) (opener, acceptor *Carrier) {
	t.Helper()
	a, b := make(t)
	return endsOver(t, a, b, handler)
}

func endsOver(t testing.TB, a, b net.Conn, handler HandlerFunc) (opener, acceptor *Carrier) {
	t.Helper()
	failed := make(chan error, 1)
	go func() {
		var err error
		opener, err = Dialed(t.Context(), a, Hello{Session: "s", Features: []string{"f", "g"}}, Config{Linger: 100 * time.Millisecond})
		failed <- err
	}()
	acceptor, hello, err := Accepted(t.Context(), b, Config{Role: Acceptor, Handler: handler, Linger: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if hello.Session != "s" || len(hello.Features) != 2 || hello.Version != Version {
		t.Fatalf("HELLO arrived as %+v", hello)
	}
	t.Cleanup(func() {
		_ = opener.Close()
		_ = acceptor.Close()
	})
	return opener, acceptor
}

// accepting hands every connection to a channel.
func accepting(to chan<- *Conn) HandlerFunc {
	return func(_ context.Context, p *Pending) {
		if cn, err := p.Accept(Endpoints{Local: "10.0.0.1:1", Remote: "10.0.0.2:2"}); err == nil {
			to <- cn
		}
	}
}

var request = OpenRequest{Network: "tcp", Address: "cluster1:443", TraceID: "t"}
