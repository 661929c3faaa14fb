package fleetview

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// TestNarrowedWatch watches objects of one cluster, which leaves the view.
func TestNarrowedWatch(t *testing.T) {
	for name, selector := range map[string]string{"cluster": "metadata.cluster%3Db", "name": "metadata.name%3Dweb-0000@b"} {
		synctest.Test(t, func(t *testing.T) {
			a, b := newCluster("a", pods(1)...), newCluster("b", pods(1)...)
			view := testView(a, b)
			var left atomic.Bool
			all, rest := view.Members, testView(a).Members
			view.Members = func(ctx context.Context) ([]fleet.Member, error) {
				if left.Load() {
					return rest(ctx)
				}
				return all(ctx)
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, shop+"?watch=true&timeoutSeconds=60&fieldSelector="+selector, nil)
			r.URL.Host, r.RequestURI = "", ""
			h := New(Options{})
			response, err := roundTrip(func(w http.ResponseWriter, r *http.Request) { h.Serve(w, r, view) }, r)
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%s: got %+v, %v", name, response, err)
			}
			defer response.Body.Close()
			got := []string{}
			for events := json.NewDecoder(response.Body); ; {
				var event struct {
					Type   string
					Object object
				}
				if err := events.Decode(&event); err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				got = append(got, fmt.Sprintf("%s %s of %s", event.Type, event.Object.name(), event.Object.cluster()))
				left.Store(true)
			}
			if diff := cmp.Diff([]string{"ADDED web-0000@b of b", "DELETED web-0000@b of b"}, got); diff != "" {
				t.Errorf("%s: events (-want +got):\n%s", name, diff)
			}
			if requests := a.asked(); len(requests) != 0 {
				t.Errorf("%s: a was asked %+v, want nothing", name, requests)
			}
		})
	}
}

func TestWatchRefusals(t *testing.T) {
	a := newCluster("a", pods(1)...)
	h := New(Options{})
	for url, want := range map[string]int{
		shop + "?watch=true&fieldSelector=metadata.cluster%3Dx": 404,
		shop + "?watch=1&resourceVersion=7":                     410,
		shop + "?watch&timeoutSeconds=x":                        400,
		shop + "?watch=false&limit=1":                           200,
		shop + "?watch=0&limit=1":                               200,
	} {
		if got := h.getList(t, testView(a), url); got.code != want {
			t.Errorf("%s: got %d %q, want %d", url, got.code, got.body, want)
		}
	}
}
