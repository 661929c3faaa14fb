package proxyapi

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentheaders"
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
			rw.Header().Set(agentheaders.Leaving, "1")
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
		if resp.StatusCode != http.StatusOK || resp.Header.Get(agentheaders.Leaving) != "" {
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
