package proxyapi

import (
	"net/http"
	"sync/atomic"
	"testing"
)

// TestReadsOutliveTheSharedConnection has agents go away while they have a
// request that came by HTTP/2. A request that only reads is asked of the next one, once.
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
		"a watch":                {path: "/api/v1/pods?watch=1", agents: 1, asked: 2, code: http.StatusOK},
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
						t.Errorf("request %d came by %s, want HTTP/2", n, r.Proto)
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
				t.Fatalf("the first request is answered %d, want 200", code)
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
				t.Errorf("answered %d %s, want 200", resp.StatusCode, body)
			}
		}
		_ = agent.server.Close()
	}
}
