package fleetindexer

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
)

// only lets callers list one namespace.
func only(namespace string) func(string, feed.Question) feed.Decision {
	return func(_ string, q feed.Question) feed.Decision { return feed.Decision{Allowed: q.Namespace == namespace} }
}

func (f *fixture) search(t *testing.T, text string, clusters ...string) indexapi.SearchAnswer {
	t.Helper()
	w := f.post(t, indexapi.SearchPath, indexapi.SearchRequest{Caller: jane, Query: text, Clusters: asked(clusters...)})
	var answer indexapi.SearchAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body, err)
	}
	return answer
}

func (f *fixture) count(t *testing.T, text string, clusters ...string) indexapi.CountAnswer {
	t.Helper()
	w := f.post(t, indexapi.CountPath, indexapi.CountRequest{SearchRequest: indexapi.SearchRequest{Caller: jane, Query: text, Clusters: asked(clusters...)}, By: []string{"cluster", "namespace"}})
	var answer indexapi.CountAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body, err)
	}
	return answer
}

func hits(answer indexapi.SearchAnswer) string {
	var names []string
	for _, h := range answer.Hits {
		names = append(names, h.Cluster+"/"+h.Namespace+"/"+h.Name)
	}
	return strings.Join(names, " ")
}

// TestHit looks at a hit as a whole.
func TestHit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		row := printed("shop", "web-0")
		row.Labels, row.Owner, row.Node = map[string]string{"app": "web"}, "ReplicaSet/web", "node-1"
		f.put(t, "a", row)
		want := indexapi.SearchAnswer{Hits: []indexapi.Hit{{
			Cluster: "a", APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: "shop", Name: "web-0", UID: "uid-web-0", Status: "Running",
			Created: time.Unix(row.Created, 0).UTC(), Labels: row.Labels, Owner: row.Owner, Images: row.Images, Node: row.Node,
			Columns: []string{"Ready", "Status", "Restarts", "IP"}, Cells: json.RawMessage(`["1/1","Running","0",null]`),
		}}}
		if diff := cmp.Diff(want, f.search(t, "nginx", "a")); diff != "" {
			t.Error(diff)
		}
	})
}

// TestSearchOfTeam searches as one who may list all of one cluster, one namespace of others, and nothing of the rest.
func TestSearchOfTeam(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for _, cluster := range []string{"all", "part", "none", "away", "left", "unsure", "new"} {
			f.put(t, cluster, printed("shop", "web-0"), printed("bank", "web-1"))
		}
		all := slices.Sorted(maps.Keys(f.hub.clusters))
		f.clusters.decide["part"], f.clusters.decide["away"], f.clusters.decide["none"] = only("shop"), only("shop"), deny
		f.search(t, "web", "away")
		// One goes after it has decided, and one that was never asked.
		f.clusters.fails["away"], f.clusters.fails["left"], f.clusters.fails["unsure"] = errAway, errAway, errors500{}
		time.Sleep(time.Minute)
		for _, cluster := range []string{"all", "part", "none", "unsure", "new"} {
			f.hear(t, cluster)
		}
		f.hub.clusters["new"] = "uid-2"
		answer := f.search(t, "web", all...)
		if got := hits(answer); got != "all/bank/web-1 all/shop/web-0 away/shop/web-0 part/shop/web-0" {
			t.Errorf("got %s", got)
		}
		heard := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		want := indexapi.Basis{
			Away:      map[string]time.Time{"away": heard, "left": heard},
			Undecided: map[string]string{"left": "it is away, and had not decided what the caller may list: no agent is connected", "unsure": "it has not decided what the caller may list: it broke"},
			Unindexed: map[string]string{"new": "the hub serves no cluster with this name and UID"},
			Partly:    3,
		}
		if diff := cmp.Diff(want, answer.Basis); diff != "" {
			t.Error(diff)
		}
		if !answer.Hits[2].AsOf.Equal(heard) || !answer.Hits[3].AsOf.IsZero() {
			t.Errorf("got %+v", answer.Hits)
		}
		// A query that names namespaces is about all of them.
		if answer := f.search(t, "web namespace:shop,bank", all...); answer.Partly != 0 || len(answer.Hits) != 4 {
			t.Errorf("got %+v", answer)
		}
		counts := f.count(t, "web", all...)
		if got := fmt.Sprint(counts.Counts, counts.Total); got != "[{[all bank] 1} {[all shop] 1} {[away shop] 1} {[part shop] 1}] 4" {
			t.Errorf("counted %s", got)
		}
	})
}

// TestSearchSaysNothing adds rows that the caller may not see, and wants the same answers.
func TestSearchSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(t, "a", printed("shop", "web-0"))
		f.put(t, "b")
		f.clusters.decide["a"], f.clusters.decide["b"] = only("shop"), deny
		told := func() string {
			var all strings.Builder
			for _, text := range []string{"web", "", "status:Running", "kind:pod image:nginx", "namespace:*"} {
				found, counted := f.search(t, text, "a", "b"), f.count(t, text, "a", "b")
				fmt.Fprintf(&all, "%+v %+v\n", found, counted)
			}
			return all.String()
		}
		before := told()
		for i := range 2 * indexapi.MaxNamespaces {
			f.put(t, "b", printed(fmt.Sprintf("n%03d", i), "web-0"))
			f.put(t, "a", printed(fmt.Sprintf("t%03d", i), "web-0"))
		}
		// Why rows are missing names one.
		if _, err := f.writers["a"].Apply(t.Context(), fleetindex.Changes{Resource: pods, Incomplete: "secret-0 is too large", Version: "100"}); err != nil {
			t.Fatal(err)
		}
		if after := told(); after != before {
			t.Error(cmp.Diff(before, after))
		}
		for _, cluster := range []string{"a", "b"} {
			asked := map[string]bool{}
			for _, q := range f.clusters.questions {
				if strings.HasPrefix(q, cluster) {
					asked[q] = true
				}
			}
			if len(asked) > indexapi.MaxNamespaces+2 {
				t.Errorf("cluster %s was asked about %d namespaces", cluster, len(asked))
			}
		}
	})
}

// TestBasisIsBounded has more clusters than are named.
func TestBasisIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		var names []string
		for i := range indexapi.MaxNamed + 5 {
			names = append(names, fmt.Sprintf("c%02d", i))
		}
		answer := f.search(t, "web", names...)
		if len(answer.Unindexed) != indexapi.MaxNamed || answer.Unindexed["c00"] == "" || answer.More != 5 {
			t.Errorf("got %+v", answer.Basis)
		}
	})
}
