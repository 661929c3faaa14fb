package fleetindex

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/query"
)

func TestSearch(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{})
		eu := claim(t, s, "eu-1", podDefinition, nodeDefinition)
		put(t, eu, podDefinition,
			pod("shop", "web-0", "1"),
			pod("shop", "web-1", "2", "CrashLoopBackOff", "registry.example/nginx:1.25.3", "app=web tier=front"),
			pod("log", "log4j-Agent", "3", "Running", "library/log4j:2.0", "app.kubernetes.io/name=log a=b_c"))
		put(t, eu, nodeDefinition, node("node-1"))
		us := claim(t, s, "us-1", podDefinition)
		put(t, us, podDefinition, pod("shop", "web-0", "1", "Pending", "redis:7", "app=webby"))
		for text, want := range map[string]string{
			"log4j": "eu-1/log/log4j-Agent", "LOG4J": "eu-1/log/log4j-Agent", "log4": "", "log4*": "eu-1/log/log4j-Agent",
			"nothing": "", "crashloop*": "eu-1/shop/web-1", "\"web 0\"": "eu-1/shop/web-0 us-1/shop/web-0", "web-0": "eu-1/shop/web-0 us-1/shop/web-0",
			// Words of two fields are no phrase.
			"\"0 shop\"": "", "\"25 registry\"": "", "\"b c app\"": "",
			"image:nginx:1.25": "eu-1/shop/web-0 eu-1/shop/web-1", "image:nginx:1.25.3": "eu-1/shop/web-1", "image:nginx:1.2": "", "image:ngi*": "eu-1/shop/web-0 eu-1/shop/web-1",
			"image:web":     "",
			"label:app=web": "eu-1/shop/web-0 eu-1/shop/web-1", "label:app=web*": "eu-1/shop/web-0 eu-1/shop/web-1 us-1/shop/web-0", "label:tier": "eu-1/shop/web-1", "label:front": "",
			"label:app": "eu-1/shop/web-0 eu-1/shop/web-1 us-1/shop/web-0", "label:a=b_c": "eu-1/log/log4j-Agent", "label:a=bxc": "",
			"kind:node": "eu-1//node-1", "kind:nodes": "eu-1//node-1", "kind:!pod": "eu-1//node-1", "kind:deployment": "",
			"node:node-1": "eu-1/log/log4j-Agent eu-1/shop/web-0 eu-1/shop/web-1 us-1/shop/web-0", "node:": "eu-1//node-1",
			"status:crashloopbackoff": "eu-1/shop/web-1", "status:Pending,CrashLoopBackOff": "eu-1/shop/web-1 us-1/shop/web-0", "status:!Running kind:pod": "eu-1/shop/web-1 us-1/shop/web-0",
			"status:Crash*": "eu-1/shop/web-1", "name:*-0": "eu-1/shop/web-0 us-1/shop/web-0", "name:log4j-agent": "eu-1/log/log4j-Agent", "name:web_0": "", "name:web?0": "eu-1/shop/web-0 us-1/shop/web-0",
			"cluster:us-* web": "us-1/shop/web-0", "cluster:!us-1 web-0": "eu-1/shop/web-0", "namespace:!shop kind:pod": "eu-1/log/log4j-Agent", "namespace:lo*": "eu-1/log/log4j-Agent",
			"web kind:pod status:running": "eu-1/shop/web-0 eu-1/log/log4j-Agent",
		} {
			wanted := strings.Fields(want)
			slices.Sort(wanted)
			got := find(t, s, text, everything)
			slices.Sort(got)
			if !slices.Equal(got, wanted) {
				t.Errorf("%s: %s", text, cmp.Diff(wanted, got))
			}
			counts, err := s.Count(t.Context(), SearchOptions{Query: parse(t, text), Rights: everything}, query.Cluster, query.Status)
			if err != nil || counts.Total != int64(len(wanted)) {
				t.Errorf("%s: counted %v, %v, want %d rows", text, counts, err, len(wanted))
			}
		}
	})
}

func TestSearchFollowsChanges(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{})
		w := claim(t, s, "a", podDefinition)
		put(t, w, podDefinition, pod("shop", "web-0", "1", "Pending"), pod("shop", "web-1", "1", "Pending"))
		put(t, w, podDefinition, pod("shop", "web-0", "2", "Running"))
		if got := find(t, s, "pending", everything); !slices.Equal(got, []string{"a/shop/web-1"}) {
			t.Errorf("after a change: got %v", got)
		}
		if _, err := w.Apply(t.Context(), Changes{Resource: podDefinition.Resource, Gone: []feed.Key{{Namespace: "shop", Name: "web-1"}, {Namespace: "shop", Name: "never"}}}); err != nil {
			t.Fatal(err)
		}
		if got := find(t, s, "pending", everything); got != nil {
			t.Errorf("after a deletion: got %v", got)
		}
		if got := find(t, s, "web", everything); !slices.Equal(got, []string{"a/shop/web-0"}) {
			t.Errorf("got %v", got)
		}
	})
}

// TestSearchPages reads all rows page by page, with rights that make many runs.
func TestSearchPages(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{})
		var want []string
		for c := range 6 {
			cluster := fmt.Sprintf("c%d", c)
			w := claim(t, s, cluster, podDefinition, nodeDefinition)
			for n := range 5 {
				put(t, w, podDefinition, pod("a", fmt.Sprintf("web-%d", n), "1"), pod("b", fmt.Sprintf("web-%d", n), "1"))
				if c%2 == 0 {
					want = append(want, fmt.Sprintf("%s/a/web-%d", cluster, n))
				}
				if c == 1 {
					want = append(want, fmt.Sprintf("%s/a/web-%d", cluster, n), fmt.Sprintf("%s/b/web-%d", cluster, n))
				}
			}
		}
		rights := func(cluster string, r feed.Resource) Scope {
			switch cluster {
			case "c1":
				return Scope{All: true}
			case "c0", "c2", "c4":
				return Scope{Namespaces: []string{"a", "other"}}
			}
			return Scope{}
		}
		for _, text := range []string{"web", "name:web-*"} {
			for _, limit := range []int{1, 3, 1000} {
				var got []string
				o := SearchOptions{Query: parse(t, text), Rights: rights, Limit: limit}
				for {
					found, token, err := s.Search(t.Context(), o)
					if err != nil || len(found) > limit {
						t.Fatal(len(found), err)
					}
					for _, f := range found {
						got = append(got, f.Cluster+"/"+f.Namespace+"/"+f.Name)
					}
					if o.Continue = token; token == "" {
						break
					}
				}
				slices.Sort(got)
				slices.Sort(want)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s by %d: %s", text, limit, diff)
				}
			}
		}
		_, token, err := s.Search(t.Context(), SearchOptions{Query: parse(t, "web"), Rights: rights, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"x", token + "A", token[1:], strings.Repeat("A", 1<<20), "\x00"} {
			if _, _, err := s.Search(t.Context(), SearchOptions{Query: parse(t, "web"), Rights: rights, Continue: bad}); !errors.Is(err, ErrToken) {
				t.Errorf("token %.30q: got %v", bad, err)
			}
		}
		if _, _, err := s.Search(t.Context(), SearchOptions{Query: parse(t, "other"), Rights: rights, Continue: token}); !errors.Is(err, ErrToken) {
			t.Errorf("the token of another search: got %v", err)
		}
	})
}

// TestNothingOfOthers compares what a user is told with and without rows that they may not see.
func TestNothingOfOthers(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{})
		w := claim(t, s, "a", podDefinition)
		put(t, w, podDefinition, pod("mine", "web-0", "1"), pod("mine", "web-1", "1"))
		rights := func(cluster string, _ feed.Resource) Scope {
			if cluster == "a" {
				return Scope{Namespaces: []string{"mine"}}
			}
			return Scope{}
		}
		told := func() string {
			found, token, err := s.Search(t.Context(), SearchOptions{Query: parse(t, "web"), Rights: rights, Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			answer := fmt.Sprintf("%d rows, a token of %d bytes", len(found), len(token))
			for _, by := range query.Counted {
				for _, text := range []string{"web", "status:Running", "", "image:nginx"} {
					counts, err := s.Count(t.Context(), SearchOptions{Query: parse(t, text), Rights: rights}, by)
					if err != nil {
						t.Fatal(err)
					}
					answer += fmt.Sprintf("; %s by %s: %v", text, by, *counts)
				}
			}
			for _, namespace := range []string{"", "mine", "theirs"} {
				rows, listed := list(t, s, ListOptions{Resource: podDefinition.Resource, Namespace: namespace, Rights: rights, Limit: 1})
				answer += fmt.Sprintf("; list of %q: %v, %d feeds", namespace, rows, len(listed))
				for _, l := range listed {
					answer += fmt.Sprintf(", %d remain, a token of %d bytes", l.Remaining, len(l.Continue))
				}
			}
			return answer
		}
		before := told()
		for range 5 {
			put(t, w, podDefinition, pod("theirs", "web-2", "1", "Secret"), pod("a", "web-3", "1"))
		}
		put(t, claim(t, s, "b", podDefinition, nodeDefinition), podDefinition, pod("mine", "web-0", "1"))
		if after := told(); after != before {
			t.Error(cmp.Diff(before, after))
		}
		if found := find(t, s, "web", nil); found != nil {
			t.Errorf("without rights: got %v", found)
		}
	})
}

// TestBasis looks at what searches are about, and at namespaces of which a caller may be asked.
func TestBasis(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{})
		a := claim(t, s, "a", podDefinition, nodeDefinition)
		put(t, a, podDefinition, pod("x", "web-0", "1"), pod("y", "web-1", "1"), pod("z", "db-0", "1", "Running", "redis:7", "app=db"), pod("w", "web-2", "1"))
		put(t, claim(t, s, "b", podDefinition), podDefinition, pod("shop", "web-0", "1"))
		if _, err := a.Apply(t.Context(), Changes{Resource: podDefinition.Resource, Incomplete: "one is too large"}); err != nil {
			t.Fatal(err)
		}
		heard := time.UnixMilli(1700000100123)
		if err := s.Heard(t.Context(), map[*Writer]time.Time{a: heard}); err != nil {
			t.Fatal(err)
		}
		o := SearchOptions{Query: parse(t, "app=web kind:pod"), Clusters: func(c Cluster) bool { return c.UID != "uid-b" }}
		podsOfA := FeedName{"a", podDefinition.Resource}
		if feeds, err := s.Feeds(t.Context(), o); err != nil || len(feeds) != 1 || feeds[0].FeedName != podsOfA || feeds[0].Definition.Kind != "Pod" {
			t.Errorf("got %v, %v", feeds, err)
		}
		o.Rights = everything
		found, err := s.Namespaces(t.Context(), o, 2)
		if diff := cmp.Diff(map[FeedName][]string{podsOfA: {"w", "x"}}, found); err != nil || diff != "" {
			t.Error(err, diff)
		}
		o.Rights = nil
		if found, err := s.Namespaces(t.Context(), o, 2); err != nil || len(found) != 0 {
			t.Errorf("got %v, %v where nothing is looked at", found, err)
		}
		times, partial, err := s.Basis(t.Context())
		slices.SortFunc(partial, func(a, b Partial) int { return strings.Compare(a.Reason, b.Reason) })
		want := []Partial{{FeedName{"a", nodeDefinition.Resource}, "it has not been read once"}, {podsOfA, "one is too large"}}
		if err != nil || len(times) != 1 || !times["a"].Equal(heard) || !slices.Equal(partial, want) {
			t.Errorf("got %v, %v, %v", times, partial, err)
		}
	})
}

func TestCount(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{})
		for _, cluster := range []string{"a", "b"} {
			put(t, claim(t, s, cluster, podDefinition, nodeDefinition), podDefinition,
				pod("x", "web-0", "1"), pod("x", "web-1", "1", "Pending"), pod("y", "web-0", "1"))
		}
		for _, c := range []struct {
			text  string
			by    []query.Key
			limit int
			want  string
		}{
			{"web", []query.Key{query.Cluster}, 0, "{[{[a] 3} {[b] 3}] 6 0}"},
			{"", []query.Key{query.Cluster, query.Status}, 0, "{[{[a Running] 2} {[b Running] 2} {[a Pending] 1} {[b Pending] 1}] 6 0}"},
			{"web", []query.Key{query.Status, query.Namespace}, 1, "{[{[Pending x] 2}] 6 2}"},
			{"status:pending", []query.Key{query.Kind, query.Node}, 0, "{[{[Pod node-1] 2}] 2 0}"},
			{"web", nil, 0, "{[{[] 6}] 6 0}"},
			{"nothing", []query.Key{query.Kind}, 0, "{[] 0 0}"},
		} {
			got, err := s.Count(t.Context(), SearchOptions{Query: parse(t, c.text), Rights: everything, Limit: c.limit}, c.by...)
			if err != nil || fmt.Sprint(*got) != c.want {
				t.Errorf("%q by %v: got %v, %v, want %s", c.text, c.by, got, err, c.want)
			}
		}
		for _, by := range [][]query.Key{{query.Image}, {query.Cluster, query.Cluster}, {"x"}} {
			if _, err := s.Count(t.Context(), SearchOptions{Rights: everything}, by...); err == nil {
				t.Errorf("counted by %v", by)
			}
		}
	})
}
