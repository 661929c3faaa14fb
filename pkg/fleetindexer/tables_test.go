package fleetindexer

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
)

// TestTables wants what a kube-apiserver prints of the same objects.
func TestTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		strange, unborn := printed("shop", "web-1"), printed("shop", "web-2")
		strange.Labels, strange.Deleted, strange.Created = map[string]string{"b": "", "app": "web"}, 946684800+60, 946684800-100*24*3600
		strange.Cells = json.RawMessage(` [ "web-1" , "a \"quoted\", [text]\\", "é<&>", "1 (5m ago)" ,null,"10.0.0.1" ]`)
		unborn.Created = 0
		f.put(t, "a", printed("shop", "web-0"), strange, unborn)
		const columns = `[{"name":"Name","type":"string","format":"name","description":"Name must be unique within a namespace.","priority":0},
			{"name":"Ready","type":"string","format":"","description":"","priority":0},{"name":"Status","type":"string","format":"","description":"","priority":0},
			{"name":"Restarts","type":"string","format":"","description":"","priority":0},{"name":"Age","type":"string","format":"","description":"","priority":0},
			{"name":"IP","type":"string","format":"","description":"","priority":1}]`
		object := func(metadata string) string {
			return `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{` + metadata + `}}`
		}
		for name, c := range map[string]struct {
			request indexapi.TablesRequest
			want    string
		}{
			"metadata": {indexapi.TablesRequest{Metadata: true}, `{"resourceVersion":"100"} [
				{"cells":["web-0","1/1","Running","0","3h",null],"object":` + object(`"name":"web-0","namespace":"shop","uid":"uid-web-0","resourceVersion":"7","creationTimestamp":"1999-12-31T21:00:00Z"`) + `},
				{"cells":["web-1","a \"quoted\", [text]\\","é<&>","1 (5m ago)","100d","10.0.0.1"],"object":` + object(`"name":"web-1","namespace":"shop","uid":"uid-web-1","resourceVersion":"7","creationTimestamp":"1999-09-23T00:00:00Z","deletionTimestamp":"2000-01-01T00:01:00Z","labels":{"app":"web","b":""}`) + `},
				{"cells":["web-2","1/1","Running","0","<unknown>",null],"object":` + object(`"name":"web-2","namespace":"shop","uid":"uid-web-2","resourceVersion":"7"`) + `}]`},
			"none":   {indexapi.TablesRequest{LabelSelector: "app=web"}, `{"resourceVersion":"100"} [{"cells":["web-1","a \"quoted\", [text]\\","é<&>","1 (5m ago)","100d","10.0.0.1"],"object":null}]`},
			"no row": {indexapi.TablesRequest{FieldSelector: "metadata.name=x"}, `{"resourceVersion":"100"} []`},
		} {
			c.request.Clusters = asked("a")
			metadata, rows, _ := strings.Cut(c.want, " ")
			var got, want any
			table := f.tables(t, c.request)[0].table
			if err := json.Unmarshal([]byte(table), &got); err != nil {
				t.Fatal(err, table)
			}
			if err := json.Unmarshal([]byte(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":`+metadata+`,"columnDefinitions":`+columns+`,"rows":`+rows+`}`), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		page := indexapi.TablesRequest{Clusters: asked("a"), Limit: 2}
		var first struct {
			Metadata struct {
				Continue           string
				RemainingItemCount int64
			}
		}
		table := f.tables(t, page)[0].table
		if err := json.Unmarshal([]byte(table), &first); err != nil || first.Metadata.RemainingItemCount != 1 {
			t.Fatal(err, table)
		}
		page.Clusters[0].Continue = first.Metadata.Continue
		if names := namesOf(t, f.tables(t, page)[0].table); !slices.Equal(names, []string{"web-2"}) {
			t.Errorf("the next page has %v", names)
		}
		page.Caller, page.Version, page.Resource = indexapi.Caller{Name: "joe"}, "v1", pods
		if w := f.post(t, indexapi.TablesPath, page); w.Code != http.StatusGone || !strings.Contains(w.Body.String(), `"Expired"`) {
			t.Errorf("another caller's token: got %d: %s", w.Code, w.Body)
		}
	})
}

// TestFieldsOfNoNamespace selects nodes by namespaces, which most kube-apiservers refuse, each in its words: clusters are asked.
func TestFieldsOfNoNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(t, "a")
		if err := f.writers["a"].Define(t.Context(), feed.Definition{Resource: nodes, Version: "v1", Kind: "Node", Columns: []feed.Column{{Name: "Name", Type: "string"}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.writers["a"].Apply(t.Context(), fleetindex.Changes{Resource: nodes, Version: "100", Synced: true}); err != nil {
			t.Fatal(err)
		}
		for selector, want := range map[string]string{"": "", "metadata.name=x": "", "metadata.namespace!=x": "the resource is in no namespace", "metadata.name=x,metadata.namespace=y": "the resource is in no namespace"} {
			if got := f.tables(t, indexapi.TablesRequest{Resource: nodes, FieldSelector: selector, Clusters: asked("a")})[0].Unindexed; got != want {
				t.Errorf("%q: got %q, want %q", selector, got, want)
			}
		}
	})
}

// TestTablesOf has each state in which a cluster can be.
func TestTablesOf(t *testing.T) {
	failed := errors500{}
	for name, c := range map[string]struct {
		change func(*testing.T, *fixture)
		want   string
	}{
		"current":      {func(*testing.T, *fixture) {}, "web-0"},
		"not decided":  {func(_ *testing.T, f *fixture) { f.clusters.fails["a"] = failed }, "unindexed: it has not decided what the caller may list: it broke"},
		"denied":       {func(_ *testing.T, f *fixture) { f.clusters.decide["a"] = deny }, "forbidden"},
		"owner's will": {func(_ *testing.T, f *fixture) { f.clusters.fails["a"] = &refusedError{http.StatusForbidden, "noIndex"} }, "unindexed: it has not decided what the caller may list: the agent answered 403: noIndex"},
		"may not ask": {func(_ *testing.T, f *fixture) {
			f.clusters.decide["a"] = func(string, feed.Question) feed.Decision {
				return feed.Decision{Undecided: "403: no", Refused: true, Allowed: true}
			}
		}, "unindexed: it has not decided what the caller may list: 403: no"},
		"kube-apiserver fails": {func(_ *testing.T, f *fixture) {
			f.clusters.decide["a"] = func(string, feed.Question) feed.Decision { return feed.Decision{Undecided: "502: x", Allowed: true} }
		}, "unindexed: it has not decided what the caller may list: 502: x"},
		"away, not decided before": {func(_ *testing.T, f *fixture) { f.clusters.fails["a"] = errAway }, "unindexed: it is away, and had not decided what the caller may list: no agent is connected"},
		"another UID":              {func(_ *testing.T, f *fixture) { f.hub.clusters["a"] = "uid-2" }, "unindexed: the hub serves no cluster with this name and UID"},
		"gone":                     {func(_ *testing.T, f *fixture) { delete(f.hub.clusters, "a") }, "unindexed: the hub serves no cluster with this name and UID"},
		"rows of another UID": {func(t *testing.T, f *fixture) {
			if _, err := f.store.Claim(t.Context(), fleetindex.Cluster{Name: "a", UID: "uid-2"}); err != nil {
				t.Fatal(err)
			}
		}, "unindexed: the index has not heard of the resource there"},
		"rows left out": {func(t *testing.T, f *fixture) {
			if _, err := f.writers["a"].Apply(t.Context(), fleetindex.Changes{Resource: pods, Incomplete: "one is too large"}); err != nil {
				t.Fatal(err)
			}
		}, "unindexed: rows were left out: one is too large"},
		"not all there": {func(t *testing.T, f *fixture) {
			other := printedPod
			other.Kind = "Other"
			if err := f.writers["a"].Define(t.Context(), other); err != nil {
				t.Fatal(err)
			}
		}, "unindexed: its rows are not all there yet"},
		"another version": {func(t *testing.T, f *fixture) {
			other := printedPod
			other.Version = "v2"
			if err := f.writers["a"].Define(t.Context(), other); err != nil {
				t.Fatal(err)
			}
		}, `unindexed: it has rows of version "v2"`},
		"behind":             {func(t *testing.T, f *fixture) { time.Sleep(currentFor + time.Second) }, "unindexed: its rows are as of 2000-01-01T00:00:00Z, and it can be asked"},
		"of another replica": {func(t *testing.T, f *fixture) { f.followed.Clear() }, "web-0"},
		"not heard since the start": {func(t *testing.T, f *fixture) {
			f.followed.Store(fleetindex.Cluster{Name: "a", UID: "uid-a"}, &progress{})
		}, "unindexed: its rows are as of 2000-01-01T00:00:00Z, and it can be asked"},
		"dropped": {func(t *testing.T, f *fixture) {
			if err := f.writers["a"].Drop(t.Context(), pods); err != nil {
				t.Fatal(err)
			}
		}, "unindexed: the index has not heard of the resource there"},
		"absent": {func(t *testing.T, f *fixture) {
			if err := f.writers["a"].Drop(t.Context(), pods); err != nil {
				t.Fatal(err)
			}
			p, _ := f.followed.Load(fleetindex.Cluster{Name: "a", UID: "uid-a"})
			p.(*progress).absent.Store(pods, true)
		}, "absent"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.put(t, "a", printed("shop", "web-0"))
				c.change(t, f)
				if got := f.shown(t, "a"); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		})
	}
}

type errors500 struct{}

func (errors500) Error() string { return "it broke" }

// TestForbidden wants the words of a kube-apiserver.
func TestForbidden(t *testing.T) {
	deployments := feed.Resource{Group: "apps", Resource: "deployments"}
	for want, q := range map[string]indexapi.TablesRequest{
		`User "jane" cannot list resource "pods" in API group "" at the cluster scope`:                                  {Caller: jane, Resource: pods},
		`User "jane" cannot list resource "deployments" in API group "apps" in the namespace "shop"`:                    {Caller: jane, Resource: deployments, Namespace: "shop"},
		`User "cluster:hub:system:serviceaccount:x:y" cannot list resource "pods" in API group "" at the cluster scope`: {Caller: indexapi.Caller{Name: "system:serviceaccount:x:y"}, Resource: pods},
	} {
		if got := (&tables{request: q}).forbidden(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestTablesOfMany asks about many clusters at once, in an order of the client's, and each is asked once.
func TestTablesOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		var names []string
		for i := range 2*clustersAtOnce + 10 {
			name := fmt.Sprintf("c%03d", i)
			f.put(t, name, printed("shop", "pod-of-"+name))
			f.clusters.slow[name] = time.Second
			names = append([]string{name}, names...)
		}
		var running sync.WaitGroup
		for range 2 {
			running.Go(func() {
				for i, one := range f.tables(t, indexapi.TablesRequest{Clusters: asked(names...)}) {
					if got := namesOf(t, one.table); !slices.Equal(got, []string{"pod-of-" + names[i]}) {
						t.Errorf("cluster %s has %v", names[i], got)
					}
				}
			})
		}
		running.Wait()
		for _, name := range names {
			if n := f.clusters.reviews[name]; n != 1 {
				t.Errorf("cluster %s was asked %d times", name, n)
			}
		}
		if used := f.building.used.Load(); used != 0 {
			t.Errorf("%d bytes of tables are in use at the end", used)
		}
	})
}

// TestTableTooLarge has no room for a table.
func TestTableTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(t, "a", printed("shop", "web-0"))
		f.building.most = 100
		if got := f.shown(t, "a"); got != "unindexed: its table is too large for the index: ask for pages" {
			t.Errorf("got %q", got)
		}
		if used := f.building.used.Load(); used != 0 {
			t.Errorf("%d bytes are in use at the end", used)
		}
	})
}

func TestSplitCells(t *testing.T) {
	for text, want := range map[string]string{
		`[]`: "", ` [ ] `: "", `["a"]`: `"a"`, `[1,null , true,"]","\"\\",-1.5e3]`: `1|null|true|"]"|"\"\\"|-1.5e3`,
		``: "error", `[`: "error", `{}`: "error", `["a]`: "error", `[1`: "error", `[1 2]`: "error", `[,]`: "error", `[1,]`: "error", `["\`: "error",
	} {
		cells, err := splitCells(nil, json.RawMessage(text))
		parts := make([]string, len(cells))
		for i, cell := range cells {
			parts[i] = string(cell)
		}
		if got := strings.Join(parts, "|"); err != nil && want != "error" || err == nil && got != want {
			t.Errorf("%s: got %s, %v", text, got, err)
		}
	}
}
