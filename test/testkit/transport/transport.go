// Package transport makes the two ends of a connection for tests: in memory, over TCP,
// and TLS with certificates of both ends over another transport.
package transport

import (
	"crypto/tls"
	"net"
	"sync"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// Maker makes the two ends of a connection. The caller closes them.
type Maker func(t testing.TB) (dialed, accepted net.Conn)

// Pipe is net.Pipe.
func Pipe(testing.TB) (dialed, accepted net.Conn) { return net.Pipe() }

// TCP makes a connection on the loopback interface.
func TCP(t testing.TB) (dialed, accepted net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if dialed, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return dialed, accepted
}

// TLS is Secure over TCP.
func TLS(t testing.TB) (dialed, accepted net.Conn) { return Secure(t, TCP) }

// certified is one certificate for both ends of every connection.
var certified struct {
	sync.Once
	source *pki.Reloader
}

// Secure makes a TLS connection over a transport. Both ends have verified each other.
func Secure(t testing.TB, over Maker) (dialed, accepted net.Conn) {
	t.Helper()
	a, b := over(t)
	certified.Do(func() {
		ca := pkitest.NewCA(t, "transport test")
		certified.source = pkitest.NewReloader(t, ca, pki.Leaf{CommonName: "x", DNSNames: []string{"localhost"}, Server: true, Client: true}, ca)
	})
	client := tls.Client(a, certified.source.ClientConfig("localhost"))
	server := tls.Server(b, certified.source.ServerConfig(tls.RequireAndVerifyClientCert))
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
