package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/rawhttp"
)

// cert is both sides' of every TLS connection in these tests.
func cert(t *testing.T) *pki.Reloader {
	t.Helper()
	ca := pkitest.NewCA(t, "ca")
	return pkitest.NewReloader(t, ca, pki.Leaf{CommonName: "localhost", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true, Client: true}, ca)
}

// tcpPair is the two ends of a TCP connection.
func tcpPair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialed, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close(); accepted.Close() })
	return dialed.(*net.TCPConn), accepted.(*net.TCPConn)
}

// far is the other side of a connection that is joined.
type far struct {
	io.ReadWriteCloser
	// closeWrite ends one direction, close both, and kill is what the kernel does
	// when the process is killed.
	closeWrite, close, kill func()
	stream                  bool // ends both directions at once
}

func (f *far) whole(t *testing.T) string {
	t.Helper()
	got, err := io.ReadAll(f)
	if err != nil {
		t.Errorf("reading to the end: %v", err)
	}
	return string(got)
}

// targets are the kinds of connections that a client is joined with.
var targets = map[string]func(t *testing.T, source *pki.Reloader) (net.Conn, *far){
	"TCP": func(t *testing.T, _ *pki.Reloader) (net.Conn, *far) {
		near, end := tcpPair(t)
		return near, &far{ReadWriteCloser: end, closeWrite: func() { _ = end.CloseWrite() }, close: func() { end.Close() }, kill: func() { _ = end.SetLinger(0); end.Close() }}
	},
	"TLS": func(t *testing.T, source *pki.Reloader) (net.Conn, *far) {
		below, end := tcpPair(t)
		near, there := tls.Client(BelowTLS(below), source.ClientConfig("127.0.0.1")), tls.Server(BelowTLS(end), source.ServerConfig(tls.NoClientCert))
		shaken := make(chan error, 1)
		go func() { shaken <- there.Handshake() }()
		if err := errors.Join(near.Handshake(), <-shaken); err != nil {
			t.Fatal(err)
		}
		return near, &far{ReadWriteCloser: there, closeWrite: func() { _ = there.CloseWrite() }, close: func() { there.Close() }, kill: func() { end.Close() }}
	},
	"carrier": func(t *testing.T, _ *pki.Reloader) (net.Conn, *far) {
		below, end := tcpPair(t)
		conns := make(chan *carrier.Conn, 1)
		accept := carrier.HandlerFunc(func(_ context.Context, p *carrier.Pending) {
			conn, err := p.Accept(carrier.Endpoints{})
			if err != nil {
				t.Error(err)
			}
			conns <- conn
		})
		accepted := make(chan error, 1)
		go func() {
			_, _, err := carrier.Accepted(t.Context(), end, carrier.Config{Role: carrier.Acceptor, Handler: accept})
			accepted <- err
		}()
		c, err := carrier.Dialed(t.Context(), below, carrier.Hello{}, carrier.Config{Role: carrier.Opener})
		if err := errors.Join(err, <-accepted); err != nil {
			t.Fatal(err)
		}
		near, err := c.Open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "target:1"})
		if err != nil {
			t.Fatal(err)
		}
		there := <-conns
		return near, &far{ReadWriteCloser: there, closeWrite: func() { _ = there.CloseWrite() }, close: func() { there.Close() }, kill: func() { end.Close() }}
	},
}

// clients are the kinds of clients that send CONNECT over TLS.
var clients = map[string]func(t *testing.T, address string, config *tls.Config) *far{
	"HTTP/1.1": func(t *testing.T, address string, config *tls.Config) *far {
		raw, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { raw.Close() })
		conn := tls.Client(BelowTLS(raw), config)
		there, err := Ask(t.Context(), conn, "target:1", http.Header{})
		if err != nil {
			t.Fatal(err)
		}
		return &far{ReadWriteCloser: there, closeWrite: func() { _ = conn.CloseWrite() }, close: func() { conn.Close() }, kill: func() { raw.Close() }}
	},
	"HTTP/2": func(t *testing.T, address string, config *tls.Config) *far {
		config.NextProtos = []string{"h2"}
		raw, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { raw.Close() })
		conn, err := rawhttp.ClientConn(t.Context(), tls.Client(BelowTLS(raw), config))
		if err != nil {
			t.Fatal(err)
		}
		body, in := io.Pipe()
		t.Cleanup(func() { in.Close() })
		resp, err := conn.RoundTrip(&http.Request{Method: http.MethodConnect, URL: &url.URL{Host: "target:1"}, Host: "target:1", Body: body, ContentLength: -1, Header: http.Header{}})
		if err != nil {
			t.Fatal(err)
		}
		both := struct {
			io.Reader
			io.WriteCloser
		}{resp.Body, in}
		return &far{ReadWriteCloser: both, closeWrite: func() { in.Close() }, close: func() { in.Close(); resp.Body.Close() }, kill: func() { raw.Close() }, stream: true}
	},
}

// joined is a client and a target that are joined.
func joined(t *testing.T, client, target string) (c, there *far, ended <-chan error) {
	t.Helper()
	source := cert(t)
	near, there := targets[target](t, source)
	result := make(chan error, 1)
	config := source.ServerConfig(tls.NoClientCert)
	config.NextProtos = []string{"h2", "http/1.1"}
	server := &http.Server{TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer near.Close()
		here, err := Accept(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		defer here.Close()
		result <- Join(here, near)
	})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.ServeTLS(Listener{listener}, "", "") }()
	t.Cleanup(func() { server.Close(); <-served })
	c = clients[client](t, listener.Addr().String(), source.ClientConfig("127.0.0.1"))
	exchange(t, c, there, "hello")
	exchange(t, there, c, "welcome")
	return c, there, result
}

func exchange(t *testing.T, from, to io.ReadWriter, text string) {
	t.Helper()
	sent := make(chan error, 1)
	go func() { _, err := io.WriteString(from, text); sent <- err }()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != text {
		t.Fatalf("%q, %v arrived, want %q", got, err, text)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

func everyPair(t *testing.T, test func(t *testing.T, c, there *far, ended <-chan error)) {
	for client := range clients {
		for target := range targets {
			t.Run(client+" to "+target, func(t *testing.T) {
				c, there, ended := joined(t, client, target)
				test(t, c, there, ended)
			})
		}
	}
}

// wantCutOff reads what is left, which must not end as if that were all.
func wantCutOff(t *testing.T, who string, r io.Reader) {
	t.Helper()
	if n, err := io.Copy(io.Discard, r); err == nil {
		t.Errorf("%s read a clean end after %d bytes", who, n)
	}
}

func TestTargetIsKilled(t *testing.T) {
	everyPair(t, func(t *testing.T, c, there *far, ended <-chan error) {
		exchange(t, there, c, "half of a")
		there.kill()
		wantCutOff(t, "the client", c)
		if err := <-ended; err == nil {
			t.Error("Join returned no error")
		}
	})
}

func TestClientIsKilled(t *testing.T) {
	everyPair(t, func(t *testing.T, c, there *far, ended <-chan error) {
		exchange(t, c, there, "half of a")
		c.kill()
		wantCutOff(t, "the target", there)
		if err := <-ended; err == nil {
			t.Error("Join returned no error")
		}
	})
}

// TestCleanEnds has the client end first, and its target answer after that.
func TestCleanEnds(t *testing.T) {
	everyPair(t, func(t *testing.T, c, there *far, ended <-chan error) {
		exchange(t, c, there, "question")
		c.closeWrite()
		if got := there.whole(t); got != "" {
			t.Errorf("the target got %q more, want nothing more", got)
		}
		if _, err := io.WriteString(there, "answer"); err != nil {
			t.Fatal(err)
		}
		there.close()
		if got := c.whole(t); got != "answer" {
			t.Errorf("the client got %q, want \"answer\"", got)
		}
		c.close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestTargetEndsFirst has a target that ends while the client sends. In HTTP/2 the
// client hears of it by the end of both directions; what it still sends is lost,
// and the target must hear of that.
func TestTargetEndsFirst(t *testing.T) {
	everyPair(t, func(t *testing.T, c, there *far, ended <-chan error) {
		exchange(t, c, there, "half of a")
		there.closeWrite()
		if got := c.whole(t); got != "" {
			t.Errorf("the client got %q more, want nothing more", got)
		}
		if c.stream {
			wantCutOff(t, "the target", there)
		} else {
			exchange(t, c, there, "whole")
			c.close()
			if got := there.whole(t); got != "" {
				t.Errorf("the target got %q more, want nothing more", got)
			}
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
