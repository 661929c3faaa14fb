package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/carriertest"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// carrierServer is a proxy server on a port, which echoes.
func carrierServer(t *testing.T, source *pki.Reloader, taken func(*tls.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := source.ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{carrier.ALPN}
	echo := acceptingAll("a")
	echo.Handler = carrier.HandlerFunc(func(_ context.Context, p *carrier.Pending) {
		if conn, err := p.Accept(carrier.Endpoints{}); err == nil {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	})
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			raw, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				conn := tls.Server(raw, config)
				taken(conn)
				c, _, err := carrier.Accepted(t.Context(), conn, echo)
				if err != nil {
					return
				}
				select {
				case <-c.Done():
				case <-t.Context().Done():
				}
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return listener.Addr().String()
}

// certificates are for both ends of all connections of a test.
func certificates(t *testing.T) *pki.Reloader {
	t.Helper()
	ca := pkitest.NewCA(t, "hub")
	files := pkitest.Issue(t, filepath.Join(t.TempDir(), "leaf"), ca, pki.Leaf{
		CommonName: "x", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true, Client: true}, ca)
	source := pki.NewReloader(files)
	if err := source.Load(); err != nil {
		t.Fatal(err)
	}
	return source
}

// TestSilentServerIsGivenUpOnTheWire drops the packets of a connection with
// something under way.
func TestSilentServerIsGivenUpOnTheWire(t *testing.T) {
	source, taken := certificates(t), make(chan *tls.Conn, 10)
	address := carrierServer(t, source, func(conn *tls.Conn) { taken <- conn })
	via := newCarriers(address, func() *tls.Config { return source.ClientConfig("127.0.0.1") })
	via.tcp.UserTimeout = time.Second
	defer via.pool.Close()
	conn := dialFor(t, via)
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, []byte{0}); err != nil {
		t.Fatal(err)
	}
	near := conn.(*carrierConn).Carrier().Transport().LocalAddr().String()
	for far := range taken {
		if far.RemoteAddr().String() == near {
			carriertest.Swallow(t, far)
			break
		}
	}
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if !conn.(*carrierConn).IsUnacknowledged() {
		t.Error("what was sent to a silent server counts as acknowledged")
	}
	if _, err := conn.Read([]byte{0}); CodeOf(err) != Lost || errors.Is(err, io.EOF) {
		t.Errorf("reading: %v, want code %s", err, Lost)
	}
}
