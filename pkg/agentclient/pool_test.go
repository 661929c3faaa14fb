package agentclient

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

var eventually = wait.Poll{Every: time.Millisecond, For: 20 * time.Second}.Until

// Requests after an answer that says so go over a new connection, and the
// old one lives until its last request has ended.
func TestAgentSendsItsClientsElsewhere(t *testing.T) {
	var leaving atomic.Bool
	addresses, release := make(chan string, 10), make(chan struct{})
	client, handshakes := start(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		addresses <- r.RemoteAddr
		if leaving.Load() {
			rw.Header().Set(agentapi.Leaving, "1")
		}
		if r.URL.Path == "/long" {
			_ = http.NewResponseController(rw).Flush()
			<-release
			_, _ = io.WriteString(rw, "the end")
		}
	}))
	post := func(path string) *http.Response { // which is not for the connections that are kept for reads
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.RoundTrip(req, cluster1, jane)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	ask := func() string {
		t.Helper()
		resp := post("/api")
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || resp.Header.Get(agentapi.Leaving) != "" {
			t.Errorf("answered %d with headers %v, want 200 without %s", resp.StatusCode, resp.Header, agentapi.Leaving)
		}
		return <-addresses
	}

	first := ask()
	if again := ask(); again != first {
		t.Errorf("requests take connections of their own, from %s and %s", first, again)
	}
	long := post("/long")
	defer long.Body.Close()
	<-addresses
	leaving.Store(true)
	ask() // is told
	leaving.Store(false)
	second := ask()
	if second == first {
		t.Error("the connection that the agent wants to be rid of is used on")
	}
	eventually(t, "the new one and that of the long request alone are open", func() bool { return client.Connections("cluster1") == 2 })
	close(release)
	if body, err := io.ReadAll(long.Body); err != nil || string(body) != "the end" {
		t.Errorf("the request under way ends with %q, %v", body, err)
	}
	eventually(t, "the old connection is closed without a request", func() bool { return client.Connections("cluster1") == 1 })

	// The new one may lead to the same agent: it is not left again at once.
	before := handshakes.Load()
	leaving.Store(true)
	p := client.pool("cluster1")
	p.mu.Lock()
	p.replaced = time.Now()
	p.mu.Unlock()
	for range 5 {
		ask()
	}
	if after := handshakes.Load(); after != before {
		t.Errorf("%d more handshakes within %s, want none", after-before, replaceInterval)
	}
	// But it is left then, though no answer says so again.
	leaving.Store(false)
	eventually(t, "the connection of the agent that leaves is given up", func() bool { return ask() != second })
}

// A connection that ends before the answer to a watch, or to a question of discovery, is no
// error yet. A request that may change something is not sent again.
func TestReadsAreSentAgain(t *testing.T) {
	conns := make(chan net.Conn, 8)
	var came atomic.Int32
	client, _ := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn := <-conns; came.Add(1) == 1 {
			_ = conn.Close()
			<-r.Context().Done()
		}
	}))
	dial := client.options.Dial
	client.options.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			conns <- conn
		}
		return conn, err
	}
	for _, tc := range []struct {
		method string
		kind   Kind
		want   int32
	}{{http.MethodGet, Watch, 2}, {http.MethodGet, Discovery, 2}, {http.MethodDelete, Request, 1}} {
		client.Evict("cluster1")
		came.Store(0)
		r, err := http.NewRequestWithContext(t.Context(), tc.method, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		to := cluster1
		to.Kind = tc.kind
		resp, err := client.RoundTrip(r, to, jane)
		if err == nil {
			_ = resp.Body.Close()
		}
		if n := came.Load(); n != tc.want || (err == nil) != (tc.want == 2) {
			t.Errorf("kind %v: the request came %d times, and ended with %v; want %d times", tc.kind, n, err, tc.want)
		}
	}
}

// A dial into a black hole ends for all who wait for it. If each of them dialed in
// turn then, the last would wait longer than any client does.
func TestDialsDoNotFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		config := func(string) *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS13} }
		client := New(Options{Dial: dial, TLS: config, Admission: everyAgent{}, Metrics: newMetrics()})
		began := time.Now()
		var requests sync.WaitGroup
		for range 8 {
			requests.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel() // as the handler does when a request has ended
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = client.RoundTrip(r, cluster1, jane)
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != connectTimeout {
					t.Errorf("%v after %s, want a timeout after %s", err, took, connectTimeout)
				}
			})
		}
		requests.Wait()
	})
}

// noCluster is a hub that serves no cluster any more.
type noCluster struct{ everyAgent }

func (noCluster) Served(string) error { return errors.New("the cluster is gone") }

// TestRequestAfterEvict sends a request that was admitted before its cluster went: nothing is
// kept for a cluster that nobody evicts again.
func TestRequestAfterEvict(t *testing.T) {
	client, _ := start(t, http.NotFoundHandler())
	client.options.Admission = noCluster{}
	client.Evict("cluster1")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://agent/api/v1/pods", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.RoundTrip(r, cluster1, jane); err == nil {
		t.Error("a cluster that is gone has answered")
	}
	if n := len(client.pools); n != 0 {
		t.Errorf("%d clusters have a pool, want none", n)
	}
}
