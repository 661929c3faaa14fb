package fleetindexer

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
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
	return f.searchAs(t, jane, text, clusters...)
}

func (f *fixture) searchAs(t *testing.T, as indexapi.Caller, text string, clusters ...string) indexapi.SearchAnswer {
	t.Helper()
	w := f.post(t, indexapi.SearchPath, indexapi.SearchRequest{Caller: as, Query: text, Clusters: asked(clusters...)})
	var answer indexapi.SearchAnswer
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body, err)
	}
	return answer
}

func (f *fixture) count(t *testing.T, text string, clusters ...string) indexapi.CountAnswer {
	t.Helper()
	return f.countAs(t, jane, text, clusters...)
}

func (f *fixture) countAs(t *testing.T, as indexapi.Caller, text string, clusters ...string) indexapi.CountAnswer {
	t.Helper()
	w := f.post(t, indexapi.CountPath, indexapi.CountRequest{SearchRequest: indexapi.SearchRequest{Caller: as, Query: text, Clusters: asked(clusters...)}, By: []string{"cluster", "namespace"}})
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
		f.rights.kept.write(t.Context())
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
			PartlyIn:  []string{"away", "none", "part"},
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

// TestPartly wants to be told of what may be missing, and not of what the caller may not see anyway.
func TestPartly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(t, "a", printed("shop", "web-0"))
		if err := f.writers["a"].Define(t.Context(), feed.Definition{Resource: nodes, Version: "v1", Kind: "Node", Columns: []feed.Column{{Name: "Name", Type: "string"}}}); err != nil {
			t.Fatal(err)
		}
		f.clusters.decide["a"] = func(_ string, q feed.Question) feed.Decision { return feed.Decision{Allowed: q.Resource == pods} }
		if answer := f.search(t, "", "a"); answer.Partly != 0 || len(answer.Hits) != 1 {
			t.Errorf("objects that are in no namespace are said to be missing from some: %+v", answer)
		}
		f.clusters.decide["a"] = only("shop")
		time.Sleep(freshFor)
		for text, want := range map[string]int{"": 1, "namespace:s*": 1, "namespace:!kube-system": 1, "namespace:shop": 0, "kind:node": 0} {
			if answer := f.search(t, text, "a"); answer.Partly != want {
				t.Errorf("%q: got %d", text, answer.Partly)
			}
		}
		for text, want := range map[string]int{"": 0, "kind:!pod": 0, "kind:pod": 0, "kind:node": 1, "kind:pod,node": 1} {
			if found, counted := f.search(t, text, "a"), f.count(t, text, "a"); found.Denied != want || counted.Denied != want || len(found.DeniedIn) != want {
				t.Errorf("%q: %d and %d clusters deny it", text, found.Denied, counted.Denied)
			}
		}
	})
	for _, c := range []struct {
		named, clusters, feeds int
		want                   bool
	}{{0, 1, 1, false}, {1, 5000, 1, true}, {1, 5001, 1, false}, {50, 1, 10, true}, {50, 1, 11, false}, {3, 100, 9, true}, {3, 1000, 9, false}} {
		s, feeds := search{named: c.named}, map[string]int{}
		for i := range c.clusters {
			feeds[fmt.Sprint(i)] = c.feeds
		}
		if got := s.findsAllNamed(feeds); got != c.want {
			t.Errorf("%+v: got %t", c, got)
		}
	}
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
		time.Sleep(freshFor) // all is asked again
		for i := range 2 * indexapi.MaxNamespaces {
			f.put(t, "b", printed(fmt.Sprintf("n%03d", i), "web-0"))
			f.put(t, "a", printed(fmt.Sprintf("a%03d", i), "web-0"), printed(fmt.Sprintf("t%03d", i), "web-0"))
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

// TestKindsThatAreNotIndexed searches for kinds. The index of the fixture has nodes and pods; a cluster says that nodes are of kind Machine.
func TestKindsThatAreNotIndexed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.resources = append(f.resources, feed.Resource{Group: "networking.k8s.io", Resource: "networkpolicies"}, feed.Resource{Resource: "endpoints"})
		f.put(t, "a", printed("shop", "web-0"))
		f.put(t, "b")
		machine := feed.Definition{Resource: nodes, Version: "v1", Kind: "Machine", Columns: []feed.Column{{Name: "Name", Type: "string"}}}
		if err := f.writers["b"].Define(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
		refused := func(path, text string, clusters ...string) string {
			request := indexapi.SearchRequest{Caller: jane, Query: text, Clusters: asked(clusters...)}
			var w *httptest.ResponseRecorder
			if w = f.post(t, path, request); path == indexapi.CountPath {
				w = f.post(t, path, indexapi.CountRequest{SearchRequest: request, By: []string{"cluster"}})
			}
			if w.Code == http.StatusOK {
				return ""
			}
			return fmt.Sprint(w.Code, " ", w.Body)
		}
		near := map[string]string{"pdo": " (did you mean pods?)", "pods.apps": " (did you mean pods?)", "NetworkPolicy.extensions": " (did you mean networkpolicies.networking.k8s.io?)"}
		const known = "kind:%s names nothing that is in the fleet index%s, which has nodes, pods, networkpolicies.networking.k8s.io, endpoints: ask the clusters"
		for _, path := range []string{indexapi.SearchPath, indexapi.CountPath} {
			for text, unknown := range map[string]string{
				"kind:secret": "secret", "kind:Secrets web": "Secrets", "kind:pod,secret": "secret", "kind:pdo": "pdo", "kind:secret*": "secret*", "kind:pods.apps": "pods.apps",
				"kind:pod": "", "kind:Pods": "", "kind:p*": "", "kind:node": "", "kind:NetworkPolicy": "", "kind:*policy": "", "kind:networkpolicies.networking.k8s.io": "", "kind:endpoints": "",
				"kind:po": "", "kind:NO": "", "kind:netpol": "", "kind:NetworkPolicy.networking.k8s.io": "", "kind:NetworkPolicy.extensions": "NetworkPolicy.extensions",
				"kind:!secret": "", "secret": "", "kind:machine": "", "kind:mach*": "",
			} {
				got := refused(path, text, "a", "b")
				if unknown == "" && got != "" || unknown != "" && (!strings.HasPrefix(got, "400 ") || !strings.Contains(got, fmt.Sprintf(known, unknown, near[unknown]))) {
					t.Errorf("%s %s: got %q", path, text, got)
				}
			}
		}
		// A kind that only a cluster has said is known to those who may list it there, whether there are any or not.
		unknown := refused(indexapi.SearchPath, "kind:machine", "a")
		if unknown == "" {
			t.Error("a cluster that was not asked about told of its kinds")
		}
		f.clusters.decide["b"] = deny
		time.Sleep(freshFor)
		if got := refused(indexapi.SearchPath, "kind:machine", "a", "b"); got != unknown {
			t.Errorf("one who may not list them got %q, want %q", got, unknown)
		}
		for i := range 2 * namedResources {
			f.resources = append(f.resources, feed.Resource{Group: "example.com", Resource: fmt.Sprint("r", i)})
		}
		if got := refused(indexapi.SearchPath, "kind:secret", "a"); !strings.Contains(got, "r15.example.com and 24 more") {
			t.Errorf("got %q", got)
		}
	})
}

// TestClustersThatAreNotThere names clusters, and wants the same said of one that the hub does not have and of one that the caller may not
// reach, which the index is not asked about.
func TestClustersThatAreNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(t, "eu-1", printed("shop", "web-0"))
		f.put(t, "hidden", printed("shop", "web-0"))
		for text, want := range map[string][]string{
			"web": nil, "cluster:eu-1": nil, "cluster:EU-*": nil, "cluster:!nope web": nil, "cluster:nope": {"nope"}, "cluster:hidden": {"hidden"},
			"cluster:eu-1,nope,us-* cluster:nope": {"nope", "us-*"},
		} {
			if found, counted := f.search(t, text, "eu-1"), f.count(t, text, "eu-1"); !slices.Equal(found.Unknown, want) || !slices.Equal(counted.Unknown, want) {
				t.Errorf("%s: unknown are %q and %q, want %q", text, found.Unknown, counted.Unknown, want)
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
		for _, name := range names {
			f.put(t, name, printed("shop", "web-0"))
			f.clusters.decide[name] = deny
		}
		if answer := f.search(t, "web", names...); answer.Partly != len(names) || !slices.Equal(answer.PartlyIn, names[:indexapi.MaxFew]) {
			t.Errorf("got %+v", answer.Basis)
		}
	})
}
