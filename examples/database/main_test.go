package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeProxyAPI takes CONNECT with a password, sends something at once, and then what it gets.
func fakeProxyAPI(t *testing.T, target, password string) (f forwarder) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", r.Header.Get("Proxy-Authorization")) // which BasicAuth reads
		if _, got, _ := r.BasicAuth(); r.Method != http.MethodConnect || r.Host != target || got != password {
			http.Error(w, "you may not reach this Service", http.StatusForbidden)
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nhello ")
		_, _ = io.Copy(conn, buffered)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	f = forwarder{proxy: server.Listener.Addr().String(), ca: filepath.Join(dir, "ca.crt"), tokenFile: filepath.Join(dir, "token"), target: target}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(f.ca, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// serve starts the forwarder and returns its port. It ends with the test.
func serve(t *testing.T, f forwarder) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// talk sends something, ends, and returns what came until the other side ended.
func talk(t *testing.T, address, text string) (string, error) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(conn)
	return string(got), err
}

// TestForward sends bytes there and back, with the token that the file has at the time.
func TestForward(t *testing.T) {
	f := fakeProxyAPI(t, "postgres.shop.svc.cluster1:5432", "right")
	address := serve(t, f)
	for _, test := range []struct{ token, want string }{{"wrong\n", ""}, {"right\n", "hello world"}} {
		if err := os.WriteFile(f.tokenFile, []byte(test.token), 0o600); err != nil {
			t.Fatal(err)
		}
		// A refused client is cut off, maybe while it sends.
		if got, err := talk(t, address, "world"); got != test.want || test.want != "" && err != nil {
			t.Errorf("with token %q got %q, %v; want %q", test.token, got, err, test.want)
		}
	}
}

// TestRefusals wants the reason, and no connection to a proxy whose certificate another CA signed.
func TestRefusals(t *testing.T) {
	f := fakeProxyAPI(t, "a.b.svc.c:1", "right")
	if err := os.WriteFile(f.tokenFile, []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.connect(t.Context()); err == nil || !strings.Contains(err.Error(), "403") || !strings.Contains(err.Error(), "you may not reach this Service") {
		t.Errorf("with a wrong token: %v, want what the proxy API says", err)
	}
	other := fakeProxyAPI(t, "a.b.svc.c:1", "right")
	other.tokenFile, other.proxy = f.tokenFile, net.JoinHostPort("localhost", other.proxy[strings.LastIndex(other.proxy, ":")+1:])
	if _, _, err := other.connect(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("by a name that is not in the certificate: %v, want that it is refused", err)
	}
	if err := (forwarder{target: "nothing"}).run(t.Context(), ""); err == nil {
		t.Error("a target without a port is accepted")
	}
}

// TestLargeAnswer wants every byte of what is longer than any buffer.
func TestLargeAnswer(t *testing.T) {
	f := fakeProxyAPI(t, "a.b.svc.c:1", "right")
	if err := os.WriteFile(f.tokenFile, []byte("right"), 0o600); err != nil {
		t.Fatal(err)
	}
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	conn, err := net.Dial("tcp", serve(t, f))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != "hello "+string(sent) {
		t.Errorf("%d bytes came back, %v; want %d", len(got), err, len(sent)+len("hello "))
	}
}
