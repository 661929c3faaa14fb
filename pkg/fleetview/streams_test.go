package fleetview

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// over serves a view over HTTP.
func (h *Handler) over(t testing.TB, view fleet.View) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.Serve(w, r, view) }))
	t.Cleanup(server.Close)
	return server
}

// large sets n pods of 10 kB each.
func large(c *cluster, n int) *cluster {
	for _, path := range pods(n) {
		c.set(path, object{"spec": map[string]any{"nodeName": strings.Repeat("x", 10_000)}})
	}
	return c
}

// TestBreakingMembers has a member whose answer ends early. It is left out if that is known
// before the header is sent; else the client must notice.
func TestBreakingMembers(t *testing.T) {
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	tests := map[string]struct {
		// pods are those of the clusters a, b and c; b ends after some bytes.
		a, b, after int
		query       string
		accept      string
		aborts      bool
		want        int
	}{
		"early":                       {1, 50, 100_000, "", fleet.JSONType, false, 2},
		"late":                        {1, 200, 1_500_000, "", fleet.JSONType, true, 0},
		"behind a large one":          {200, 50, 100_000, "", fleet.JSONType, true, 0},
		"early, a page":               {1, 50, 100_000, "?limit=300", fleet.JSONType, false, 2},
		"late, a page":                {1, 200, 1_500_000, "?limit=300", fleet.JSONType, false, 2},
		"behind a large one, a page":  {200, 50, 100_000, "?limit=300", fleet.JSONType, false, 201},
		"the first, late, a page":     {0, 200, 1_500_000, "?limit=300", fleet.JSONType, true, 0},
		"behind a large one, a table": {2000, 50, 1000, "", table, false, 2001},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a, b, c := large(newCluster("a"), test.a), large(newCluster("b"), test.b), large(newCluster("c"), 1)
			var begun sync.WaitGroup // a page does not wait for those that begin later than others
			for _, member := range []*cluster{a, b, c} {
				begun.Add(1)
				begin := sync.OnceFunc(begun.Done)
				after, then := 1<<30, func(*http.Request) {}
				if member == b {
					after, then = test.after, reset
				}
				member.failing(func(w http.ResponseWriter, r *http.Request) bool {
					return breaking(member, after, then)(&beginWriter{w, func() { begin(); begun.Wait() }}, r)
				})
			}
			server := New(Options{}).over(t, testView(a, b, c))
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/pods"+test.query, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept", test.accept)
			response, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if aborted := err != nil; aborted != test.aborts {
				t.Fatalf("reading the answer of %d bytes: got error %v, want one: %v", len(body), err, test.aborts)
			}
			if test.aborts {
				return
			}
			if got := strings.Count(string(body), fleet.AnnotationCluster); got != test.want {
				t.Errorf("got %d objects, want %d", got, test.want)
			}
			warned, later := strings.Count(strings.Join(response.Header["Warning"], "\n"), "not shown"), strings.Contains(string(body), `"continue":"`)
			if test.accept == table {
				return // it answers a Table of less than it breaks off after
			}
			if warned == 0 && !later || warned > 1 {
				t.Errorf("got Warnings %q, want one, or a last page that has it", response.Header["Warning"])
			}
		})
	}
}

// beginWriter calls begin before each Write.
type beginWriter struct {
	http.ResponseWriter
	begin func()
}

func (w *beginWriter) Write(p []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(p)
}

// TestClientGoes ends requests of members when the client has gone.
func TestClientGoes(t *testing.T) {
	for name, fault := range map[string]func(*cluster) func(http.ResponseWriter, *http.Request) bool{
		"before the header": func(*cluster) func(http.ResponseWriter, *http.Request) bool { return silent },
		"in the body":       func(c *cluster) func(http.ResponseWriter, *http.Request) bool { return breaking(c, 1_000_000, freeze) },
	} {
		for _, url := range []string{shop, shop + "?limit=500", shop + "/web-0000@b", shop + "/web-0000"} {
			begun := make(chan struct{}, 10)
			a, b := large(newCluster("a"), 1), large(newCluster("b"), 200)
			answer := fault(b)
			b.failing(func(w http.ResponseWriter, r *http.Request) bool {
				begun <- struct{}{}
				return answer(w, r)
			})
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan struct{})
			go func() {
				defer close(served)
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				New(Options{}).Serve(httptest.NewRecorder(), r, testView(a, b))
			}()
			<-begun
			cancel()
			select {
			case <-served:
			case <-time.After(time.Minute):
				t.Fatalf("%s, %s: still served after a minute, the client has gone", name, url)
			}
		}
	}
}

// TestHugePage has members whose objects do not fit in memory on one page.
func TestHugePage(t *testing.T) {
	long.Test(t)
	var clusters []*cluster
	want := []string{}
	for i, n := range []int{1, 17} {
		c := newCluster(fmt.Sprintf("c%d", i))
		for j := range n {
			c.set(fmt.Sprintf("%s/p%02d", shop, j), object{"spec": map[string]any{"x": strings.Repeat("x", 1<<20)}})
			want = append(want, fmt.Sprintf("p%02d@%s", j, c.name))
		}
		clusters = append(clusters, c)
	}
	got := New(Options{}).pages(t, testView(clusters...), 500)
	if diff := cmp.Diff(want, namesOf(got)); diff != "" || len(got) != 2 {
		t.Errorf("got %d pages, want 2; names (-want +got):\n%s", len(got), diff)
	}
}
