package fleetindex

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

func TestListSelects(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{})
		// The order is that of the clusters' names, in whatever order they came.
		put(t, claim(t, s, "b", podDefinition), podDefinition, pod("shop", "web-0", "1"), pod("Shop", "Web", "1"), pod("a", "z", "1", "Running", "x", "app=db"))
		put(t, claim(t, s, "a", podDefinition, nodeDefinition), podDefinition, pod("shop", "web-0", "1", "Running", "x", "app=web tier=front"))
		for name, c := range map[string]struct {
			options ListOptions
			want    string
		}{
			"all":                                  {ListOptions{}, "a/shop/web-0 b/Shop/Web b/a/z b/shop/web-0"},
			"a namespace":                          {ListOptions{Namespace: "shop"}, "a/shop/web-0 b/shop/web-0"},
			"a cluster":                            {ListOptions{Clusters: []Wanted{{Cluster: Cluster{"b", "uid-b"}}}}, "b/Shop/Web b/a/z b/shop/web-0"},
			"label":                                {ListOptions{Labels: selector(t, "app=web,tier")}, "a/shop/web-0"},
			"labels in":                            {ListOptions{Labels: selector(t, "app in (db, cache)")}, "b/a/z"},
			"label not":                            {ListOptions{Labels: selector(t, "app!=db,!tier")}, "b/Shop/Web b/shop/web-0"},
			"nothing":                              {ListOptions{Labels: labels.Nothing()}, ""},
			"name":                                 {ListOptions{Fields: fields.ParseSelectorOrDie("metadata.name=web-0,metadata.namespace!=x")}, "a/shop/web-0 b/shop/web-0"},
			"not a name":                           {ListOptions{Fields: fields.ParseSelectorOrDie("metadata.name!=web-0")}, "b/Shop/Web b/a/z"},
			"another order":                        {ListOptions{Clusters: []Wanted{{Cluster: Cluster{"b", "uid-b"}}, {Cluster: Cluster{"none", "uid"}}, {Cluster: Cluster{"a", "uid-a"}}}, Namespace: "shop"}, "a/shop/web-0 b/shop/web-0"},
			"another cluster with the name":        {ListOptions{Clusters: []Wanted{{Cluster: Cluster{"b", "uid-2"}}}}, ""},
			"no rights":                            {ListOptions{Rights: Rights(func(string, feed.Resource) Scope { return Scope{} })}, ""},
			"right to namespace":                   {ListOptions{Namespace: "shop", Rights: only("a", "shop")}, "a/shop/web-0"},
			"all namespaces need the right to all": {ListOptions{Rights: only("a", "shop")}, ""},
			"another namespace":                    {ListOptions{Namespace: "x", Rights: only("a", "shop")}, ""},
		} {
			c.options.Resource = podDefinition.Resource
			if c.options.Rights == nil {
				c.options.Rights = everything
			}
			wanted := strings.Fields(c.want)
			// Pages of any size have the same rows in the same order, and no last page is empty.
			for _, limit := range []int{0, 1, 2, 3, 4} {
				o := c.options
				o.Limit = limit
				got := pages(t, s, o)
				if !slices.Equal(got, wanted) {
					t.Errorf("%s, limit %d: %s", name, limit, cmp.Diff(wanted, got))
				}
			}
		}
		if err := s.CheckList(ListOptions{Fields: fields.ParseSelectorOrDie("spec.nodeName=x")}); err == nil {
			t.Error("a field that the index does not have was taken")
		}
	})
}

// TestListOrder wants the order of a kube-apiserver, whose keys are namespace/name.
func TestListOrder(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{})
		put(t, claim(t, s, "a", podDefinition, nodeDefinition), podDefinition, pod("a", "z", "1"), pod("a0", "x", "1"), pod("a-b", "x", "1"), pod("a", "b-c", "1"), pod("a", "b.c", "1"), pod("a", "b", "1"), pod("a-b-c", "x", "1"), pod("b", "x", "1"))
		wanted := []string{"a/a-b-c/x", "a/a-b/x", "a/a/b", "a/a/b-c", "a/a/b.c", "a/a/z", "a/a0/x", "a/b/x"}
		for limit := range 5 {
			if got := pages(t, s, ListOptions{Resource: podDefinition.Resource, Rights: everything, Limit: limit}); !slices.Equal(got, wanted) {
				t.Errorf("limit %d: %s", limit, cmp.Diff(wanted, got))
			}
		}
	})
}

// TestListPages wants of a page what a kube-apiserver says of it, and that its token is for nothing else.
func TestListPages(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{})
		w := claim(t, s, "a", podDefinition)
		put(t, w, podDefinition, pod("shop", "web-0", "1"), pod("shop", "web-1", "1"), pod("shop", "web-2", "1"), pod("x", "web-3", "1"))
		put(t, claim(t, s, "b", podDefinition), podDefinition, pod("shop", "web-0", "1"))
		o := ListOptions{Resource: podDefinition.Resource, Rights: everything, Caller: "jane", Limit: 2}
		rows, listed := list(t, s, o)
		a := listed[0]
		if !slices.Equal(rows, []string{"a/shop/web-0", "a/shop/web-1", "b/shop/web-0"}) || a.Continue == "" || a.Remaining != 2 || a.Version != "100" || listed[1].Continue != "" || listed[1].Remaining != 0 {
			t.Errorf("got %v, %+v", rows, listed)
		}
		// The version of the first page stays while rows are written between the pages.
		if _, err := w.Apply(t.Context(), Changes{Resource: podDefinition.Resource, Gone: []feed.Key{{Namespace: "shop", Name: "web-1"}}, Version: "200"}); err != nil {
			t.Fatal(err)
		}
		next := o
		next.Clusters = []Wanted{{Cluster{"a", "uid-a"}, a.Continue}}
		if rows, listed := list(t, s, next); !slices.Equal(rows, []string{"a/shop/web-2", "a/x/web-3"}) || listed[0].Version != "100" || listed[0].Continue != "" {
			t.Errorf("got %v, %+v", rows, listed)
		}
		o.Namespace = "shop"
		if _, listed := list(t, s, o); listed[0].Remaining != 0 {
			t.Errorf("a list that selects says that %d rows remain", listed[0].Remaining)
		}
		for name, change := range map[string]func(*ListOptions){
			"another cluster":   func(o *ListOptions) { o.Clusters[0].Cluster = Cluster{"b", "uid-b"} },
			"another UID":       func(o *ListOptions) { o.Clusters[0].UID = "uid-2" },
			"another caller":    func(o *ListOptions) { o.Caller = "joe" },
			"another resource":  func(o *ListOptions) { o.Resource = nodeDefinition.Resource },
			"another namespace": func(o *ListOptions) { o.Namespace = "x" },
			"another selector":  func(o *ListOptions) { o.Labels = selector(t, "app=web") },
			"one of no store":   func(o *ListOptions) { o.Clusters[0].Continue = "x" },
		} {
			o := next
			o.Clusters = slices.Clone(next.Clusters)
			change(&o)
			if err := s.CheckList(o); !errors.Is(err, ErrToken) {
				t.Errorf("the token with %s: got %v", name, err)
			}
		}
	})
}

func selector(t *testing.T, text string) labels.Selector {
	t.Helper()
	parsed, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func only(cluster string, namespaces ...string) Rights {
	return func(c string, _ feed.Resource) Scope {
		if c != cluster {
			return Scope{}
		}
		return Scope{Namespaces: namespaces}
	}
}

// TestListIsWhole lists more rows of more clusters than one statement reads, in pages and at once.
func TestListIsWhole(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{})
		var want []string
		for c := range 110 {
			w := claim(t, s, fmt.Sprintf("c%03d", (c*7)%110), podDefinition)
			n := 3
			if c == 50 {
				n = maxPage + 3
			}
			var rows []feed.Row
			for i := range n {
				rows = append(rows, pod("shop", fmt.Sprintf("web-%05d", i), "1"))
				want = append(want, fmt.Sprintf("c%03d/shop/web-%05d", (c*7)%110, i))
			}
			for part := range slices.Chunk(rows, MaxChanges) {
				put(t, w, podDefinition, part...)
			}
		}
		slices.Sort(want)
		for _, o := range []ListOptions{{}, {Namespace: "shop"}, {Labels: selector(t, "app!=db")}, {Limit: 700}, {Limit: 700, Labels: selector(t, "app!=db")}} {
			o.Resource, o.Rights = podDefinition.Resource, everything
			got := pages(t, s, o)
			if !slices.Equal(got, want) {
				t.Errorf("%+v: got %d rows, want %d in order", o, len(got), len(want))
			}
		}
	})
}

// TestListSaysWhatItIsBasedOn looks at rows and feeds as a whole.
func TestListSaysWhatItIsBasedOn(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{})
		w := claim(t, s, "a", podDefinition)
		row := pod("shop", "web-0", "7", "Running", "x", "app=web b=")
		row.Images, row.Deleted = []string{"a:1", "b:2"}, 1700000099
		put(t, w, podDefinition, row)
		heard := time.UnixMilli(1700000100123)
		if err := s.Heard(t.Context(), map[*Writer]time.Time{w: heard}); err != nil {
			t.Fatal(err)
		}
		claim(t, s, "b", podDefinition)
		var found []Found
		o := ListOptions{Resource: podDefinition.Resource, Rights: everything, Clusters: all(t, s)}
		err := s.List(t.Context(), o, func(_ *Listed, f *Found) error {
			if f != nil {
				found = append(found, *f)
			}
			return nil
		})
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		if diff := cmp.Diff(row, found[0].Row); diff != "" || found[0].Cluster != "a" || found[0].Definition.Kind != "Pod" {
			t.Error(found[0].Cluster, diff)
		}
		o.Reads = func(l *Listed) bool { return l.Cluster != "a" }
		rows, listed := list(t, s, o)
		if len(listed) != 2 || len(rows) != 0 {
			t.Fatalf("got %v, %v", rows, listed)
		}
		a, b := listed[0], listed[1]
		if a.Cluster != "a" || a.Version != "100" || !a.Synced || !a.Heard.Equal(heard) || a.Incomplete != "" {
			t.Errorf("got %+v", a)
		}
		if b.Cluster != "b" || b.Version != "" || b.Synced {
			t.Errorf("got %+v", b)
		}
		stop := errors.New("enough")
		if err := s.List(t.Context(), o, func(*Listed, *Found) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("got %v", err)
		}
	})
}

// TestListWhileClustersCome lists while other processes write.
func TestListWhileClustersCome(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		writes, reads := at.open(t, Options{}), at.open(t, Options{})
		put(t, claim(t, writes, "a", podDefinition), podDefinition, pod("shop", "web-0", "1"))
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 20 {
				w := claim(t, writes, fmt.Sprintf("b-%02d", i), podDefinition)
				for n := range 5 {
					put(t, w, podDefinition, pod("shop", fmt.Sprintf("web-%d", n), "1"))
				}
				if err := writes.Remove(t.Context(), Cluster{Name: fmt.Sprintf("b-%02d", i-1), UID: fmt.Sprintf("uid-b-%02d", i-1)}); err != nil {
					t.Error(err)
				}
			}
		}()
		for working := true; working; {
			select {
			case <-done:
				working = false
			default:
			}
			rows, _ := list(t, reads, ListOptions{Resource: podDefinition.Resource, Rights: everything})
			if !slices.Contains(rows, "a/shop/web-0") || !slices.IsSorted(rows) {
				t.Fatalf("got %v", rows)
			}
		}
		if rows, _ := list(t, reads, ListOptions{Resource: podDefinition.Resource, Rights: everything}); len(rows) != 6 {
			t.Errorf("got %v", rows)
		}
	})
}
