package proxyagent

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// A request that came just before the end of a drain is answered, and one that never ends
// does not hold the agent up.
func TestLastRequestsOfADrainAreAnswered(t *testing.T) {
	ca := pkitest.NewCA(t, "agents")
	reloader := pkitest.NewReloader(t, ca, pki.Leaf{CommonName: "agent", DNSNames: []string{"agent"}, Server: true, Client: true}, ca)
	config := reloader.ServerConfig(tls.NoClientCert)
	config.NextProtos = []string{"h2"}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	came, release := make(chan string, 2), make(chan struct{})
	server := &http.Server{TLSConfig: config, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		came <- r.URL.Path
		if r.URL.Path == "/watch" {
			<-r.Context().Done()
			return
		}
		<-release
		_, _ = io.WriteString(w, "the answer")
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.ServeTLS(listener, "", "") }()
	defer func() { _ = server.Close(); <-served }()
	transport := &http.Transport{TLSClientConfig: reloader.ClientConfig("agent"), Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP2(true)
	defer transport.CloseIdleConnections()
	ask := func(path string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+listener.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		<-came
		return resp
	}
	watch, last := ask("/watch"), ask("/last")
	defer watch.Body.Close()
	defer last.Body.Close()
	if watch.ProtoMajor != 2 || last.ProtoMajor != 2 {
		t.Fatalf("%s and %s, want HTTP/2", watch.Proto, last.Proto)
	}

	ending, cancel := context.WithCancel(t.Context())
	defer cancel()
	finished := make(chan struct{})
	go func() { defer close(finished); finish(ending, server) }()
	wait.Poll{Every: time.Millisecond, For: 20 * time.Second}.Until(t, "the handler takes no more connections", func() bool {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	close(release)
	if body, err := io.ReadAll(last.Body); err != nil || string(body) != "the answer" {
		t.Errorf("the last request is answered %q, %v", body, err)
	}
	cancel() // as lastAnswers does
	<-finished
}
