package connect

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"testing"
)

// upgraded is a user and a backend behind httputil.ReverseProxy, which have changed the
// protocol.
type upgraded struct {
	user    *net.TCPConn
	backend *tls.Conn
	below   *net.TCPConn // the backend's
	// hold is locked while nothing may be written to the user.
	hold *sync.Mutex
	// unwritten is closed when the proxy could not write to the backend.
	unwritten chan struct{}
	ended     chan struct{}
}

// heldConn is the proxy's connection to the user.
type heldConn struct {
	*net.TCPConn
	hold *sync.Mutex
}

func (c *heldConn) Write(p []byte) (int, error) {
	c.hold.Lock()
	defer c.hold.Unlock()
	return c.TCPConn.Write(p)
}

// heldListener accepts one connection.
type heldListener struct {
	net.Listener
	conn chan net.Conn
}

func (l *heldListener) Accept() (net.Conn, error) {
	conn, ok := <-l.conn
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

// tellingConn tells of the first failed write.
type tellingConn struct {
	*net.TCPConn
	failed func()
}

func (c *tellingConn) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	if err != nil {
		c.failed()
	}
	return n, err
}

func startUpgraded(t *testing.T) *upgraded {
	t.Helper()
	source := cert(t)
	near, below := tcpPair(t)
	here, user := tcpPair(t)
	u := &upgraded{user: user, below: below, backend: tls.Server(BelowTLS(below), source.ServerConfig(tls.NoClientCert)),
		hold: &sync.Mutex{}, unwritten: make(chan struct{}), ended: make(chan struct{})}
	telling := &tellingConn{near, sync.OnceFunc(func() { close(u.unwritten) })}
	transport := &http.Transport{DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn := tls.Client(BelowTLS(telling), source.ClientConfig("127.0.0.1"))
		return conn, conn.HandshakeContext(ctx)
	}}
	proxy := &httputil.ReverseProxy{Transport: transport, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite:        func(p *httputil.ProxyRequest) { p.Out.URL.Scheme, p.Out.URL.Host = "https", "backend" },
		ModifyResponse: func(resp *http.Response) error { Upgraded(resp); return nil }}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(u.ended)
		w, r = Upgrade(w, r)
		proxy.ServeHTTP(w, r)
	})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	held := &heldListener{listener, make(chan net.Conn, 1)}
	held.conn <- &heldConn{here, u.hold}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(held) }()
	t.Cleanup(func() { close(held.conn); server.Close(); <-served })
	_, err = io.WriteString(user, "GET / HTTP/1.1\r\nHost: backend\r\nConnection: Upgrade\r\nUpgrade: any\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := http.ReadRequest(bufio.NewReader(u.backend)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(u.backend, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: any\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(user)
	if resp, err := http.ReadResponse(reader, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols || reader.Buffered() > 0 {
		t.Fatalf("the user got %v, %v; want status 101 and nothing behind it", resp, err)
	}
	return u
}

// output is more than one read of the proxy and less than a socket holds.
var output = bytes.Repeat([]byte("what a command prints\n"), 3000)

// TestBackendEndsWhileTheUserSends has a backend that ends, as a kube-apiserver does when a
// command has ended, before what it sent has passed the proxy and while the user's next
// bytes come: the user gets all the same what the backend has sent.
func TestBackendEndsWhileTheUserSends(t *testing.T) {
	for name, end := range map[string]func(*upgraded){
		"cleanly":      func(u *upgraded) { u.backend.Close() },
		"by its death": func(u *upgraded) { u.below.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			u := startUpgraded(t)
			u.hold.Lock()
			if _, err := u.backend.Write(output); err != nil {
				t.Fatal(err)
			}
			end(u)
			for sent := true; sent; {
				select {
				case <-u.unwritten:
					sent = false
				default:
					if _, err := u.user.Write([]byte("x")); err != nil {
						t.Fatal(err)
					}
				}
			}
			u.hold.Unlock()
			got, err := io.ReadAll(u.user)
			if !bytes.Equal(got, output) {
				t.Errorf("the user got %d bytes, want the %d that were sent", len(got), len(output))
			}
			if clean := name == "cleanly"; (err == nil) != clean {
				t.Errorf("the user's end is %v, want a clean one: %v", err, clean)
			}
			if err := u.user.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			<-u.ended
		})
	}
}
