package proxyagent

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/health"
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
		tunnels := newTestServers(t.Context(), dial.FullJitter)
		tunnels.dialer.handler, tunnels.dialer.decide = handler, func(string, string) (policy.Target, error) {
			return policy.Target{Address: address.String(), Handler: true}, nil
		}
		here := pool.New(pool.Config{})
		defer here.Close()
		tunnels.pools[here] = struct{}{}
		open := func() (*carrier.Conn, error) {
			near, far := net.Pipe()
			dialed := make(chan error, 1)
			go func() {
				c, err := carrier.Dialed(t.Context(), far, carrier.Hello{}, *tunnels.dialer.carrierConfig())
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

func TestConnDrainer(t *testing.T) {
	known := newTestServers(t.Context(), dial.FullJitter)
	addTestServer(known, "stays")
	addTestServer(known, "goes").state = stateDraining
	addTestServer(known, "mute").state = stateHalfOpen
	upgrade := http.Header{"Upgrade": {"websocket"}, "Connection": {"keep-alive, Upgrade"}}
	for name, tc := range map[string]struct {
		through []string
		ending  bool
		major   int
		headers http.Header
		want    http.Header
	}{
		"nothing drains":            {through: []string{"stays"}, major: 2},
		"the server drains":         {through: []string{"goes"}, major: 2, want: http.Header{agentapi.Leaving: {"1"}}},
		"the one before it drains":  {through: []string{"stays", "goes"}, major: 2, want: http.Header{agentapi.Leaving: {"1"}}},
		"one that is not known":     {through: []string{"stays", "new"}, major: 2},
		"no one before it":          {through: []string{"stays", ""}, major: 2},
		"the server was lost":       {through: []string{"lost"}, major: 2, want: http.Header{agentapi.Leaving: {"1"}}},
		"the server is mute":        {through: []string{"mute"}, major: 2, want: http.Header{agentapi.Leaving: {"1"}}},
		"the one before it is mute": {through: []string{"stays", "mute"}, major: 2},
		"the server drains, h1":     {through: []string{"goes"}, major: 1, want: http.Header{"Connection": {"close"}}},
		"the agent drains":          {through: []string{"stays"}, ending: true, major: 2, want: http.Header{agentapi.Leaving: {"1"}}},
		"the agent drains, h1":      {ending: true, major: 1, want: http.Header{"Connection": {"close"}}},
		"an upgrade":                {through: []string{"goes"}, major: 1, headers: upgrade},
	} {
		t.Run(name, func(t *testing.T) {
			drainer := newConnDrainer()
			drainer.servers.Store(known)
			drainer.ending.Store(tc.ending)
			var conn net.Conn = &net.TCPConn{}
			if tc.through != nil {
				conn = &handedConn{through: tc.through}
			}
			ctx := drainer.via(t.Context(), tls.Server(conn, &tls.Config{}))
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			r.ProtoMajor = tc.major
			for key, values := range tc.headers {
				r.Header[key] = values
			}
			got := httptest.NewRecorder()
			drainer.handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(got, r)
			for _, header := range []string{agentapi.Leaving, "Connection"} {
				if got.Header().Get(header) != tc.want.Get(header) {
					t.Errorf("%s: %q, want %q", header, got.Header().Get(header), tc.want.Get(header))
				}
			}
		})
	}
}

func TestConnectionsWithoutRequestsAreUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drainer := newConnDrainer()
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		drainer.watch(a, http.StateIdle)
		drainer.watch(b, http.StateIdle)
		if n := drainer.countUnused(); n != 0 {
			t.Errorf("%d are unused though their next request may be on its way", n)
		}
		time.Sleep(quiet)
		drainer.watch(b, http.StateActive)
		if n := drainer.countUnused(); n != 1 {
			t.Errorf("%d are unused, want the one without a request", n)
		}
		drainer.watch(a, http.StateClosed)
		if n := drainer.countUnused(); n != 0 {
			t.Errorf("%d are unused after the end", n)
		}
	})
}
