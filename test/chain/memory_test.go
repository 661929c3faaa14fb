package chain

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestMemoryRunsOut opens streams in processes with little memory until one of
// them is refused. The processes live, what is open goes on, and once it has ended
// new streams are taken again.
func TestMemoryRunsOut(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "96MiB")
	word := make(chan struct{})
	var held sync.WaitGroup
	w := start(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.RawQuery, "watch") {
			return
		}
		held.Add(1)
		defer held.Done()
		_ = http.NewResponseController(rw).Flush()
		select {
		case <-word:
			_, _ = io.WriteString(rw, "x")
		case <-r.Context().Done():
		}
	}), options{})
	client := w.client(2)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	watch := func() (*http.Response, string) {
		resp, err := client.Do(w.request(http.MethodGet, "/api/v1/namespaces/default/pods?watch=true", nil).WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusOK {
			return resp, ""
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "memory limit") {
			t.Fatalf("answer %d %.500s, want 503 for the memory limit", resp.StatusCode, body)
		}
		return nil, string(body)
	}
	var open []*http.Response
	for {
		// Users have 2000 streams at most.
		if len(open) == 2000 {
			t.Fatal("2000 streams are open and none was refused")
		}
		resp, refusal := watch()
		if resp == nil {
			t.Logf("after %d streams: %s", len(open), refusal)
			break
		}
		open = append(open, resp)
	}
	close(word)
	for _, resp := range open {
		if body, err := io.ReadAll(resp.Body); string(body) != "x" || err != nil {
			t.Fatalf("an open stream reads %q, %v, want \"x\"", body, err)
		}
	}
	held.Wait()
	eventually(t, "new streams are taken again", func() bool {
		resp, _ := watch()
		if resp != nil {
			resp.Body.Close()
		}
		return resp != nil
	})
	for _, p := range []*process{w.server, w.agent, w.api} {
		select {
		case <-p.ended:
			t.Errorf("%s has ended", p.name)
		default:
		}
	}
	for _, line := range []string{"Refusing new connections and requests", "Taking new connections and requests again"} {
		eventually(t, "a log has "+line, func() bool {
			n := 0
			for _, p := range []*process{w.server, w.agent, w.api} {
				n += strings.Count(p.output(), line)
			}
			return n > 0
		})
	}
}
