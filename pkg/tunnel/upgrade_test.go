package tunnel_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel/tunneltest"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// TestDialerTakesAnUpgradeUp has konnectivity's proxy server replaced by one that
// speaks carriers, at the same address.
func TestDialerTakesAnUpgradeUp(t *testing.T) {
	ca := pkitest.NewCA(t, "hub")
	files := pkitest.Issue(t, filepath.Join(t.TempDir(), "leaf"), ca, pki.Leaf{
		CommonName: "x", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true, Client: true}, ca)
	source := pki.NewReloader(files)
	if err := source.Load(); err != nil {
		t.Fatal(err)
	}
	config := func(protocol string) *tls.Config {
		c := source.ServerConfig(tls.RequireAndVerifyClientCert)
		c.NextProtos = []string{protocol}
		return c
	}
	older := tunneltest.StartTLS(t, config("h2"))
	older.Handle(target, func(context.Context) (net.Conn, error) {
		near, _ := net.Pipe()
		return near, nil
	})
	newer := serveEach(t, func(conn net.Conn) {
		c, _, err := carrier.Accepted(t.Context(), tls.Server(conn, config(carrier.ALPN)), carrier.Config{
			Role: carrier.Acceptor, Name: "a", Handler: carrier.HandlerFunc(func(_ context.Context, p *carrier.Pending) {
				// Until it is closed a carrier waits for whoever is to read what comes.
				if conn, err := p.Accept(carrier.Endpoints{}); err == nil {
					_, _ = io.Copy(io.Discard, conn)
					_ = conn.Close()
				}
			})})
		if err == nil {
			<-c.Done()
		}
	})
	var leadsTo atomic.Pointer[string]
	lead := func(address string) { leadsTo.Store(&address) }
	lead(older.Address())
	front := serveEach(t, func(conn net.Conn) {
		behind, err := net.Dial("tcp", *leadsTo.Load())
		if err != nil {
			return
		}
		defer behind.Close()
		go func() {
			_, _ = io.Copy(conn, behind)
			_ = conn.Close()
		}()
		_, _ = io.Copy(behind, conn)
	})

	dialer, err := tunnel.FromFiles(front, files.CA, files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	defer dialer.Close()
	if _, err := dialer.DialContext(t.Context(), "tcp", target); err != nil || dialer.Protocol() != tunnel.Konnectivity {
		t.Fatalf("a dial to the older server: %v, by %q", err, dialer.Protocol())
	}
	lead(newer)
	older.Stop()
	for end := time.Now().Add(20 * time.Second); dialer.Protocol() != tunnel.Carriers; {
		conn, err := dialer.DialContext(t.Context(), "tcp", target)
		if err == nil {
			_ = conn.Close()
		} else if time.Now().After(end) {
			t.Fatalf("carriers are not used: %v", err)
		}
	}
}

// serveEach serves each connection on a port of its own until the test ends.
func serveEach(t *testing.T, serve func(net.Conn)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(t.Context(), func() { _ = conn.Close() })
			serving.Go(func() {
				serve(conn)
				stop()
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return listener.Addr().String()
}
