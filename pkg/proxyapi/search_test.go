package proxyapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// TestSearch wants searches about the clusters in which the user may list, with the answer as the index gives it.
func TestSearch(t *testing.T) {
	answer := &indexapi.SearchAnswer{Hits: []indexapi.Hit{{Cluster: "cluster1", Kind: "Pod", Name: "web"}}, Continue: "next", Basis: indexapi.Basis{Away: map[string]time.Time{"cluster2": time.Unix(1, 0).UTC()}}}
	code := http.StatusOK
	index := &fakeIndex{
		search: func(*indexapi.SearchRequest) (*indexapi.SearchAnswer, int) { return answer, code },
		count: func(*indexapi.CountRequest) *indexapi.CountAnswer {
			return &indexapi.CountAnswer{Total: 7, Counts: []indexapi.Count{{Values: []string{"cluster1", "Running"}, N: 7}}}
		},
	}
	log, set := withAuditLog(t)
	w, live := startIndexed(t, index, indexLeaf(), set)
	w.api.User("bob", "bob")
	w.api.User("eve", "eve")
	w.api.User("pam", "pam")
	w.api.Allow("bob get fleetviews all", "bob list clusters/proxy cluster2", "eve list clusters/proxy *", "pam get fleetviews all", "pam get clusters/proxy *")
	search := func(token, view, query string) (*http.Response, string) {
		return w.ask(http.MethodGet, scope.ViewsPath+view+"/search"+query, token)
	}
	resp, body := search("hub-token", "all", "?q=kind:pod+web&limit=5&continue=before")
	var got struct {
		Kind string
		indexapi.SearchAnswer
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || resp.StatusCode != 200 || got.Kind != "FleetSearch" {
		t.Fatalf("%d %s: %v", resp.StatusCode, body, err)
	}
	if diff := cmp.Diff(*answer, got.SearchAnswer); diff != "" {
		t.Errorf("the answer (-want +got):\n%s", diff)
	}
	want := indexapi.SearchRequest{Caller: index.searched[0].Caller, Query: "kind:pod web", Limit: 5, Continue: "before", Clusters: []indexapi.Cluster{{Name: "cluster1", UID: "uid-of-cluster1"}, {Name: "cluster2", UID: "uid-of-cluster2"}}}
	if diff := cmp.Diff(want, index.searched[0]); diff != "" || want.Caller.Name != "jane" {
		t.Errorf("the question of %s (-want +got):\n%s", want.Caller.Name, diff)
	}
	if resp, body := search("hub-token", "all", "?q=kind:pod&countBy=cluster,status"); resp.StatusCode != 200 || !strings.Contains(body, `"kind":"FleetCount"`) || !strings.Contains(body, `"total":7`) {
		t.Errorf("counts: %d %s", resp.StatusCode, body)
	}
	answer.Hits, answer.Away = nil, nil
	if resp, _ := search("bob", "live", "?q=web"); resp.StatusCode != 403 {
		t.Errorf("a view without the right: %d, want 403", resp.StatusCode)
	}
	for _, who := range []string{"bob", "pam"} { // pam may list nowhere
		if resp, body := search(who, "all", "?q=web"); resp.StatusCode != 200 {
			t.Errorf("%s: %d %s", who, resp.StatusCode, body)
		}
	}
	if bob, pam := index.searched[1], index.searched[2]; len(bob.Clusters) != 1 || bob.Clusters[0].Name != "cluster2" || len(pam.Clusters) > 0 {
		t.Errorf("bob's clusters are %+v and pam's %+v", bob.Clusters, pam.Clusters)
	}
	for _, tc := range []struct {
		token, view, query string
		code               int
		want               string
	}{
		{"eve", "all", "?q=web", 403, "cannot get"},
		{"", "all", "?q=web", 401, ""},
		{"hub-token", "all", "?q=king:pod", 400, "is no key of a search"},
		{"hub-token", "all", "?q=web&limit=1001", 400, "limit is"},
		{"hub-token", "all", "?q=web&countBy=label", 400, "cannot be counted by"},
		{"hub-token", "shop", "?q=web", 400, "has some resources only"},
		{"hub-token", "all", "/x?q=web", 404, "nothing is below"},
		{"hub-token", "nowhere", "?q=web", 403, ""},
	} {
		if resp, body := search(tc.token, tc.view, tc.query); resp.StatusCode != tc.code || !strings.Contains(body, tc.want) {
			t.Errorf("%s searches %s%s: %d %s; want %d and %q", tc.token, tc.view, tc.query, resp.StatusCode, body, tc.code, tc.want)
		}
	}
	if resp, body := w.ask(http.MethodPost, scope.ViewsPath+"all/search?q=web", "hub-token"); resp.StatusCode != 405 {
		t.Errorf("POST: %d %s, want 405", resp.StatusCode, body)
	}
	for _, wrong := range []indexapi.SearchAnswer{{Hits: []indexapi.Hit{{Cluster: "cluster3"}}}, {Basis: indexapi.Basis{PartlyIn: []string{"cluster3"}}}} {
		*answer = wrong
		if resp, body := search("hub-token", "all", "?q=web"); resp.StatusCode != 503 || strings.Contains(body, "cluster3") {
			t.Errorf("of a cluster that was not asked for: %d %s, want 503", resp.StatusCode, body)
		}
	}
	*answer, code = indexapi.SearchAnswer{}, http.StatusInternalServerError
	if resp, body := search("hub-token", "all", "?q=web"); resp.StatusCode != 503 || !strings.Contains(body, "the fleet index did not answer: try again") {
		t.Errorf("an index that fails: %d %s, want 503", resp.StatusCode, body)
	}
	if live.Load() > 0 || len(index.wrong) > 0 {
		t.Errorf("%d clusters were asked; wrong questions: %s", live.Load(), index.wrong)
	}
	first := w.eventsOf(t, log)[0]
	if got := first.Annotations[scope.AnnotationPrefix+"remembered-rights"]; first.ObjectRef.Subresource != "search" || first.Verb != "list" || got != "cluster2" {
		t.Errorf("the event is %+v, with remembered rights of %q", first.ObjectRef, got)
	}
}

// TestSearchWithoutAnIndex says what is missing.
func TestSearchWithoutAnIndex(t *testing.T) {
	w := fleetWorld(t, askAll)
	w.api.User("hub-token", "jane")
	w.api.Allow("jane get fleetviews all")
	if resp, body := w.ask(http.MethodGet, scope.ViewsPath+"all/search?q=web", "hub-token"); resp.StatusCode != 404 || !strings.Contains(body, "fleetIndex.enabled") {
		t.Errorf("%d %s, want 404 and how to install it", resp.StatusCode, body)
	}
}
