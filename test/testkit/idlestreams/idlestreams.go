// Package idlestreams leaves a watch and an upgraded connection through a
// process alone for twenty minutes, in which every timer on the way goes off that
// wants to. That is for a synctest bubble: the network is in memory.
package idlestreams

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"open-cluster-management.io/cluster-proxy/test/testkit/rawhttp"
)

// quiet is how long a stream is idle.
const quiet = 20 * time.Minute

// Network is a network in memory, by address.
type Network map[string]*bufconn.Listener

// Listen listens on an address that Dial knows from then on. It is not safe for
// concurrent use.
func (n Network) Listen(address string) net.Listener {
	n[address] = bufconn.Listen(1 << 20)
	return listener{n[address]}
}

// Dial is that of a net.Dialer.
func (n Network) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	raw, err := n[address].DialContext(ctx)
	return conn{raw}, err
}

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, net.ErrClosed // bufconn has no other, and says it in words of its own
	}
	return conn{raw}, nil
}

// conn can be read after a deadline that has passed, which crypto/tls believes
// of temporary errors only.
type conn struct{ net.Conn }

func (c conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// Server is what is to be at the end of the way that Check looks at.
func Server(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
			_, _ = io.Copy(conn, buffered)
			return
		}
		for range 2 {
			fmt.Fprintln(w, "event")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(quiet)
		}
	})
}

// Check opens a watch and an upgraded connection below prefix, a path, of the
// process at address, and wants what comes after the idle time.
func Check(t *testing.T, network Network, address, prefix string, config *tls.Config) {
	t.Helper()
	dial := func(protocol string) *tls.Conn {
		t.Helper()
		raw, err := network.Dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		own := config.Clone()
		own.NextProtos = []string{protocol}
		secure := tls.Client(raw, own)
		if err := secure.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return secure
	}
	watching, err := rawhttp.ClientConn(t.Context(), dial("h2"))
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+config.ServerName+prefix+"/api/v1/pods?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := watching.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	events := bufio.NewReader(response.Body)
	shell := dial("http/1.1")
	defer shell.Close()
	fmt.Fprintf(shell, "POST %s/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", prefix)
	typed := bufio.NewReader(shell)
	if response, err := http.ReadResponse(typed, nil); err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the upgrade was answered with %v, %v; want 101", response, err)
	}
	began := time.Now()
	for range 2 {
		if line, err := events.ReadString('\n'); line != "event\n" {
			t.Fatalf("after %s the watch gave %q, %v, want \"event\\n\"", time.Since(began), line, err)
		}
	}
	if since := time.Since(began); since < quiet {
		t.Fatalf("the second event came after %s: nothing was idle", since)
	}
	fmt.Fprintln(shell, "still here")
	if line, err := typed.ReadString('\n'); line != "still here\n" {
		t.Errorf("echo gave %q, %v, want \"still here\\n\"", line, err)
	}
	_, _ = io.Copy(io.Discard, events) // the server's next pause
}
