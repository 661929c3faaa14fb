package fleetview

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
)

// newReplicas makes Handlers that ask each other.
func newReplicas(n int) []*Handler {
	all := make([]*Handler, n)
	for i := range all {
		positions := &position.Store{Ask: func(_ context.Context, v version.Version, owner string, take func([]byte) bool) bool {
			for j, other := range all {
				if j != i && take(other.positions.Answer(v, owner)) {
					break
				}
			}
			return true
		}}
		all[i] = New(Options{Positions: positions})
	}
	return all
}

// TestListOfReplicas lists pages on two replicas, and watches from the list on a third one.
func TestListOfReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := newCluster("a", pods(5)...), newCluster("b", pods(4)...), newCluster("c", pods(3)...)
		view, replicas := testView(a, b, c), newReplicas(3)
		// Far ahead: no client's version would be followed there.
		replicas[1].clock.After(time.Now().Add(365 * 24 * time.Hour).UnixMicro())
		var names []string
		at, token := "", ""
		for i := 1; i == 1 || token != ""; i++ {
			page := replicas[i%2].getList(t, view, shop+"?limit=2&continue="+url.QueryEscape(token))
			if page.code != 200 || at != "" && page.list.Metadata.ResourceVersion != at {
				t.Fatalf("page %d: got %d with version %s, want 200 with %s", i, page.code, page.list.Metadata.ResourceVersion, at)
			}
			names = append(names, page.names()...)
			at, token = page.list.Metadata.ResourceVersion, page.list.Metadata.Continue
		}
		if len(names) != 12 {
			t.Errorf("got %q on all pages, want 12 names", names)
		}
		for i, m := range []*cluster{a, b, c} {
			m.set(shop+"/new", object{"metadata": map[string]any{"labels": map[string]any{"i": fmt.Sprint(i)}}})
		}
		for i, h := range replicas {
			answer := h.request(t, view, "GET", shop+"?watch=true&timeoutSeconds=5&resourceVersion="+at, "")
			var events []string
			last := at
			for line := range strings.Lines(answer.body) {
				var event struct {
					Type   string
					Object struct {
						Metadata struct {
							Name, ResourceVersion string
							Annotations           map[string]string
						}
					}
				}
				if err := json.Unmarshal([]byte(line), &event); err != nil {
					t.Fatal(err)
				}
				meta := event.Object.Metadata
				if events = append(events, event.Type+" "+meta.Annotations[fleet.AnnotationCluster]+"/"+meta.Name); meta.ResourceVersion <= last {
					t.Errorf("replica %d: version %s follows %s", i, meta.ResourceVersion, last)
				}
				last = meta.ResourceVersion
			}
			slices.Sort(events)
			if diff := cmp.Diff([]string{"ADDED a/new", "ADDED b/new", "ADDED c/new"}, events); diff != "" || answer.code != 200 {
				t.Errorf("replica %d: got %d with events (-want +got):\n%s", i, answer.code, diff)
			}
		}
	})
}

// TestContinueOfAnotherUser has a user go on with another's continue token, who then goes on
// herself, with a renewed token of her own. A watch sends her the objects that she has not listed.
func TestContinueOfAnotherUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", pods(2)...), newCluster("b", pods(1)...)
		ann, evil, h := testView(a, b), testView(a, b), New(Options{})
		evil.User, evil.Account = "evil", "evil"
		first := h.getList(t, ann, shop+"?limit=2").list.Metadata
		rest := shop + "?limit=2&continue=" + url.QueryEscape(first.Continue)
		if page := h.getList(t, evil, rest); page.code != 200 || page.list.Metadata.Continue != "" {
			t.Fatalf("evil's page: got %d with %q, want the last one", page.code, page.list.Metadata.Continue)
		}
		b.set(shop+"/before", nil)
		ann.User = "ann, with another token"
		if page := h.getList(t, ann, rest); len(page.names()) != 2 {
			t.Fatalf("ann's page: got %d %q, want 2 names", page.code, page.names())
		}
		b.set(shop+"/after", nil)
		answer := h.request(t, ann, http.MethodGet, shop+"?watch=true&timeoutSeconds=5&resourceVersion="+first.ResourceVersion, "")
		if answer.code != 200 || strings.Contains(answer.body, `"before"`) || !strings.Contains(answer.body, `"after"`) {
			t.Errorf("ann's watch: got %d %s, want the event after her list", answer.code, answer.body)
		}
		for _, query := range []string{"?watch=true&timeoutSeconds=5&resourceVersion=", "?resourceVersionMatch=Exact&resourceVersion="} {
			if answer = h.request(t, testView(a, b), http.MethodGet, shop+query+h.getList(t, evil, shop).list.Metadata.ResourceVersion, ""); answer.code != http.StatusGone {
				t.Errorf("%s of another user: got %d, want 410", query, answer.code)
			}
		}
	})
}

// TestListIsNotOlder lists on a replica whose clock is behind the one that a client knows.
func TestListIsNotOlder(t *testing.T) {
	replicas := newReplicas(2)
	view := testView(newCluster("a", shop+"/x"))
	replicas[0].clock.After(time.Now().Add(5 * time.Second).UnixMicro())
	first := replicas[0].getList(t, view, shop).list.Metadata.ResourceVersion
	for _, match := range []string{"", "&resourceVersionMatch=NotOlderThan"} {
		next := replicas[1].getList(t, view, shop+"?resourceVersion="+first+match)
		if got := next.list.Metadata.ResourceVersion; next.code != 200 || got <= first {
			t.Errorf("%q: got %d with version %q, want one that is greater than %s", match, next.code, got, first)
		}
	}
}
