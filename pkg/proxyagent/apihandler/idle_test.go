package apihandler

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
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/test/bufconn"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/pkitest"
)

// quiet is how long a stream may be idle.
const quiet = 20 * time.Minute

// memListener and memConn are a network in memory, on which time can be a test's
// own.
type memListener struct{ *bufconn.Listener }

func (l memListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return memConn{conn}, err
}

func (l memListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := l.DialContext(ctx)
	return memConn{conn}, err
}

// memConn can be read after a deadline that has passed, which crypto/tls believes
// of temporary errors only.
type memConn struct{ net.Conn }

func (c memConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// inMemory is the handler without a network, and a kube-apiserver behind it.
func inMemory(t *testing.T, apiServer http.Handler) (dial func(protocol string) *tls.Conn) {
	t.Helper()
	hubCA, agentCA, clusterCA := pkitest.NewCA(t, "hub"), pkitest.NewCA(t, "agents"), pkitest.NewCA(t, "cluster")
	serve := func(server *http.Server) memListener {
		l := memListener{bufconn.Listen(1 << 20)}
		done := make(chan struct{})
		go func() { defer close(done); _ = server.ServeTLS(l, "", "") }()
		t.Cleanup(func() { _ = server.Close(); <-done })
		return l
	}
	config := pkitest.NewSource(t, clusterCA, pki.Leaf{CommonName: "kube-apiserver", DNSNames: []string{"kubernetes"}, Server: true}, clusterCA).ServerConfig(tls.NoClientCert)
	config.NextProtos = []string{"h2", "http/1.1"}
	behind := serve(&http.Server{Handler: apiServer, TLSConfig: config})
	source := pkitest.NewSource(t, agentCA, pki.Leaf{CommonName: identity.AgentCommonName("cluster1"), DNSNames: []string{identity.HandlerHost("cluster1")}, Server: true}, hubCA)
	server, err := NewServer(&rest.Config{Host: "https://kubernetes", Dial: behind.dial, TLSClientConfig: rest.TLSClientConfig{CAData: clusterCA.CertPEM()}}, source, Services{}, Access{})
	if err != nil {
		t.Fatal(err)
	}
	handler := serve(server)
	client := pkitest.NewSource(t, hubCA, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true}, agentCA).ClientConfig(identity.HandlerHost("cluster1"))
	return func(protocol string) *tls.Conn {
		t.Helper()
		raw, err := handler.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		own := client.Clone()
		own.NextProtos = []string{protocol}
		conn := tls.Client(raw, own)
		if err := conn.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return conn
	}
}

// TestIdleStreams leaves a watch and an upgraded connection alone for twenty
// minutes, in which every timer on the way goes off that wants to, and wants what
// comes then.
func TestIdleStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := inMemory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				conn, buffered, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
				_, _ = io.Copy(conn, buffered)
				return
			}
			for range 2 {
				fmt.Fprintln(w, "event")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(quiet)
			}
		}))
		watching, err := new(http2.Transport).NewClientConn(dial("h2"))
		if err != nil {
			t.Fatal(err)
		}
		defer watching.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+identity.HandlerHost("cluster1")+"/api/v1/pods?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := watching.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		events := bufio.NewReader(resp.Body)
		shell := dial("http/1.1")
		defer shell.Close()
		fmt.Fprint(shell, "GET /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		typed := bufio.NewReader(shell)
		if resp, err := http.ReadResponse(typed, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v", resp, err)
		}
		began := time.Now()
		for range 2 {
			if line, err := events.ReadString('\n'); line != "event\n" {
				t.Fatalf("after %s the watch gave %q, %v", time.Since(began), line, err)
			}
		}
		if since := time.Since(began); since < quiet {
			t.Fatalf("the second event came after %s: nothing was idle", since)
		}
		fmt.Fprintln(shell, "still here")
		if line, err := typed.ReadString('\n'); line != "still here\n" {
			t.Errorf("echo gave %q, %v", line, err)
		}
		_, _ = io.Copy(io.Discard, events) // the kube-apiserver's next pause
	})
}
