package proxyagent

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/health"
	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/policy"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// A dial during a drain is served, and one that comes at its end is refused, so that the
// server sends it to another agent: accepted, it would be cut.
func TestDialsOfADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		address := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7443} // where nobody listens
		handler := newConnListener(address)
		go func() {
			for {
				conn, err := handler.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
			}
		}()
		defer handler.Close()
		tunnels := newServers(t.Context(), &carrierDialer{handler: handler, memory: memlimit.New(prometheus.NewRegistry(), "", ""), decide: func(string, string) (policy.Target, error) {
			return policy.Target{Address: address.String(), Handler: true}, nil
		}}, pool.Config{}, dial.FullJitter)
		here := pool.New(pool.Config{})
		defer here.Close()
		tunnels.pools[here] = struct{}{}
		open := func() (*carrier.Conn, error) {
			near, far := net.Pipe()
			dialed := make(chan error, 1)
			go func() {
				c, err := carrier.Dialed(t.Context(), far, carrier.Hello{Version: carrier.Version}, *tunnels.carriers.carriers())
				if err == nil {
					err = here.Add(c)
				}
				dialed <- err
			}()
			server, _, err := carrier.Accepted(t.Context(), near, carrier.Config{})
			if err := errors.Join(err, <-dialed); err != nil {
				t.Fatal(err)
			}
			return server.Open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "cluster1:443"})
		}
		a := &Agent{options: &Options{MinDrainDuration: 10 * time.Second, GracefulShutdownTimeout: 30 * time.Second}, conns: newConnDrainer(), health: health.New(health.Options{})}
		a.conns.servers.Store(tunnels)
		drained := make(chan struct{})
		go func() { defer close(drained); a.drain(t.Context()) }()
		time.Sleep(9 * time.Second)
		conn, err := open()
		if err != nil {
			t.Fatalf("dialing while the agent drains: %v", err)
		}
		time.Sleep(5 * time.Second)
		select {
		case <-drained:
			t.Fatal("the drain has ended before the connection")
		default:
		}
		_ = conn.Close()
		<-drained
		if _, err := open(); carrier.CodeOf(err) != carrier.Draining {
			t.Errorf("dialing at the end of the drain: %v, want %s", err, carrier.Draining)
		}
	})
}

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
