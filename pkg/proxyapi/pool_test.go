package proxyapi

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

	"github.com/prometheus/client_golang/prometheus"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
)

// What comes after an answer that says so goes over a new connection, and the
// old one lives until its last request has ended.
func TestAgentSendsItsClientsElsewhere(t *testing.T) {
	w := start(t)
	var leaving atomic.Bool
	addresses, release := make(chan string, 10), make(chan struct{})
	agent := w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		addresses <- r.RemoteAddr
		if leaving.Load() {
			rw.Header().Set(agentapi.Leaving, "1")
		}
		if r.URL.Path == "/long" {
			_ = http.NewResponseController(rw).Flush()
			<-release
			_, _ = io.WriteString(rw, "the end")
		}
	}), "cluster1")
	client := w.client()
	post := func(path string) *http.Response { // which is not for the connections that are kept for reads
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/cluster1"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer managed")
		resp, err := client.Do(req)
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
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
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
	if n := w.server.pool.connections("cluster1"); n != 2 {
		t.Errorf("%d connections are open, want the new one and that of the long request", n)
	}
	close(release)
	if body, err := io.ReadAll(long.Body); err != nil || string(body) != "the end" {
		t.Errorf("the request under way ends with %q, %v", body, err)
	}
	for deadline := time.Now().Add(10 * time.Second); w.server.pool.connections("cluster1") != 1; {
		if time.Now().After(deadline) {
			t.Fatal("the old connection stays open without a request")
		}
		ask()
	}

	// The new one may lead to the same agent: it is not left again at once.
	before := agent.handshakes.Load()
	leaving.Store(true)
	w.server.pool.agent("cluster1").turned = time.Now()
	for range 5 {
		ask()
	}
	if after := agent.handshakes.Load(); after != before {
		t.Errorf("%d more handshakes within %s", after-before, turnTime)
	}
}

// TestReadsOutliveTheSharedConnection has agents go away while they have a
// request that came by HTTP/2. What only reads is asked of the next one, once.
func TestReadsOutliveTheSharedConnection(t *testing.T) {
	for name, tc := range map[string]struct {
		method, path string
		agents       int  // that go away
		abort        bool // only the request ends, not the connection
		asked        int32
		code         int
	}{
		"GET":                    {path: "/api/v1/pods", agents: 1, asked: 2, code: http.StatusOK},
		"HEAD":                   {method: http.MethodHead, path: "/version", agents: 1, asked: 2, code: http.StatusOK},
		"twice":                  {path: "/api/v1/pods", agents: 2, asked: 2, code: http.StatusBadGateway},
		"ended on purpose":       {path: "/api/v1/pods", agents: 1, abort: true, asked: 1, code: http.StatusBadGateway},
		"a write":                {method: http.MethodPost, path: "/api/v1/namespaces", agents: 1, asked: 1, code: http.StatusBadGateway},
		"a write without a body": {method: http.MethodDelete, path: "/api/v1/namespaces/a", agents: 1, asked: 1, code: http.StatusBadGateway},
		"a watch":                {path: "/api/v1/pods?watch=1", agents: 1, asked: 1, code: http.StatusBadGateway},
		"a log":                  {path: "/api/v1/namespaces/a/pods/b/log", agents: 1, asked: 1, code: http.StatusBadGateway},
		"a proxy subresource":    {path: "/api/v1/namespaces/a/pods/b/proxy/x", agents: 1, asked: 1, code: http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			var asked atomic.Int32
			agents := make([]*fakeAgent, tc.agents+1)
			for i := range agents {
				agents[i] = w.agent("cluster1", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/warm" {
						return
					}
					if n := asked.Add(1); r.ProtoMajor != 2 {
						t.Errorf("request %d came by %s", n, r.Proto)
					}
					switch {
					case i == tc.agents:
					case tc.abort:
						panic(http.ErrAbortHandler)
					default:
						w.hub.Forward(w.handlerAddress("cluster1"), agents[i+1].address)
						_ = agents[i].server.Close()
					}
				}), "cluster1")
			}
			w.hub.Forward(w.handlerAddress("cluster1"), agents[0].address)
			send := func(method, path string) int {
				req, err := http.NewRequestWithContext(t.Context(), method, w.url+"/cluster1"+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer managed")
				resp, err := w.client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				return resp.StatusCode
			}
			if code := send(http.MethodPost, "/warm"); code != http.StatusOK {
				t.Fatalf("the first request is answered %d", code)
			}
			if code := send(tc.method, tc.path); code != tc.code || asked.Load() != tc.asked {
				t.Errorf("answered %d, and came to agents %d times; want %d, %d times", code, asked.Load(), tc.code, tc.asked)
			}
		})
	}
}

// TestReadsOutliveAgents has an agent go away between two requests, so that the
// pool may know of it already, or not.
func TestReadsOutliveAgents(t *testing.T) {
	w := start(t)
	client := w.client()
	for range 20 {
		agent := w.agent("cluster1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "cluster1")
		for range 3 {
			if resp, body := get(t, client, w.url+"/cluster1/version", http.Header{"Authorization": {"Bearer managed"}}); resp.StatusCode != http.StatusOK {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
		}
		_ = agent.server.Close()
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
		agent := newPool(dial, config, newMetrics(prometheus.NewRegistry())).agent("cluster1")
		began := time.Now()
		var requests sync.WaitGroup
		for range 8 {
			requests.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel() // as the handler does when a request has ended
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://cluster1/", nil)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = agent.roundTrip(r)
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != connectTimeout {
					t.Errorf("%v after %s, want a timeout after %s", err, took, connectTimeout)
				}
			})
		}
		requests.Wait()
	})
}
