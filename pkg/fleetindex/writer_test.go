package fleetindex

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

func TestTakeoverIsFenced(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		// Two processes.
		first, second := at.open(t, Options{}), at.open(t, Options{})
		former := claim(t, first, "a", podDefinition)
		put(t, former, podDefinition, pod("shop", "web-0", "1"))
		other := claim(t, first, "b", podDefinition)
		now := claim(t, second, "a", podDefinition)
		if f := now.Feeds()[podDefinition.Resource]; f.Total != 1 || f.Version != "100" || !f.Synced {
			t.Errorf("the new writer knows %+v", f)
		}
		put(t, now, podDefinition, pod("shop", "web-1", "1"))
		for name, write := range map[string]func() error{
			"Apply": func() error {
				_, err := former.Apply(t.Context(), Changes{Resource: podDefinition.Resource, Gone: []feed.Key{{Namespace: "shop", Name: "web-1"}}})
				return err
			},
			"Define": func() error { return former.Define(t.Context(), nodeDefinition) },
			"Drop":   func() error { return former.Drop(t.Context(), podDefinition.Resource) },
		} {
			if err := write(); !errors.Is(err, ErrFenced) {
				t.Errorf("%s of the former writer: got %v", name, err)
			}
		}
		put(t, other, podDefinition, pod("shop", "web-0", "1"))
		// A writer that is fenced is heard of no more, and keeps no other one from that.
		if err := second.Heard(t.Context(), map[*Writer]time.Time{former: now2023, other: now2023}); err != nil {
			t.Error(err)
		}
		if _, listed := list(t, first, ListOptions{Resource: podDefinition.Resource, Rights: everything}); len(listed) != 2 || listed[0].Heard.Equal(now2023) || !listed[1].Heard.Equal(now2023) {
			t.Errorf("got %+v", listed)
		}
		if rows, _ := list(t, first, ListOptions{Resource: podDefinition.Resource, Rights: everything}); !slices.Equal(rows, []string{"a/shop/web-0", "a/shop/web-1", "b/shop/web-0"}) {
			t.Errorf("got %v", rows)
		}
	})
}

// TestTakeoverUnderWrites lets two processes claim a cluster in turns while both write: no row is of a
// writer that was fenced when it was written.
func TestTakeoverUnderWrites(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		stores := []*Store{at.open(t, Options{}), at.open(t, Options{})}
		claim(t, stores[0], "a", podDefinition)
		done := make(chan error)
		for i, s := range stores {
			go func() {
				var last error
				for turn := range 10 {
					w, err := s.Claim(t.Context(), Cluster{Name: "a", UID: "uid-a"})
					for n := 0; n < 5 && err == nil; n++ {
						_, err = w.Apply(t.Context(), Changes{Resource: podDefinition.Resource, Put: []feed.Row{pod(fmt.Sprintf("p%d-t%d", i, turn), fmt.Sprintf("n%d", n), "1")}})
					}
					if err != nil && !errors.Is(err, ErrFenced) {
						last = err
					}
				}
				done <- last
			}()
		}
		for range stores {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		rows, listed := list(t, stores[0], ListOptions{Resource: podDefinition.Resource, Rights: everything})
		w := claim(t, stores[1], "a")
		if f := w.Feeds()[podDefinition.Resource]; f.Total != int64(len(rows)) || len(listed) != 1 {
			t.Errorf("there are %d rows, and the feed says %d", len(rows), f.Total)
		}
		// A turn's rows have no gaps: what was written after a row that is missing would be of a fenced writer.
		turns := map[string]int{}
		for _, row := range rows {
			parts := strings.Split(row, "/")
			if want := fmt.Sprintf("n%d", turns[parts[1]]); parts[2] != want {
				t.Errorf("%s has %s, want %s", parts[1], parts[2], want)
			}
			turns[parts[1]]++
		}
	})
}

func TestAnotherClusterOfTheName(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{})
		former := claim(t, s, "a", podDefinition)
		put(t, former, podDefinition, pod("shop", "web-0", "1"))
		w, err := s.Claim(t.Context(), Cluster{Name: "a", UID: "another"})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Define(t.Context(), nodeDefinition); err != nil {
			t.Fatal(err)
		}
		put(t, w, nodeDefinition, node("n"))
		if got := find(t, s, "", everything); !slices.Equal(got, []string{"a//n"}) {
			t.Errorf("got %v", got)
		}
		// The former cluster is gone already: to remove it must not remove its successor.
		if err := s.Remove(t.Context(), Cluster{Name: "a", UID: "uid-a"}); err != nil {
			t.Fatal(err)
		}
		if got := find(t, s, "", everything); len(got) != 1 {
			t.Errorf("got %v", got)
		}
		if err := s.Remove(t.Context(), Cluster{Name: "a", UID: "another"}); err != nil {
			t.Fatal(err)
		}
		if got := find(t, s, "", everything); got != nil {
			t.Errorf("after the removal: got %v", got)
		}
		if err := w.Drop(t.Context(), nodeDefinition.Resource); !errors.Is(err, ErrFenced) {
			t.Errorf("the writer of a removed cluster: got %v", err)
		}
		put(t, claim(t, s, "c", podDefinition), podDefinition, pod("shop", "web-0", "1"))
		if err := w.Drop(t.Context(), nodeDefinition.Resource); !errors.Is(err, ErrFenced) {
			t.Errorf("after another cluster has its number: got %v", err)
		}
	})
}

func TestDefinitions(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{})
		w := claim(t, s, "a", podDefinition)
		put(t, w, podDefinition, pod("shop", "web-0", "1"))
		if err := w.Define(t.Context(), podDefinition); err != nil {
			t.Fatal(err)
		}
		if got := find(t, s, "web", everything); len(got) != 1 {
			t.Errorf("the same definition: got %v", got)
		}
		wider := podDefinition
		wider.Columns = append(slices.Clone(wider.Columns), feed.Column{Name: "IP", Type: "string"})
		if err := w.Define(t.Context(), wider); err != nil {
			t.Fatal(err)
		}
		if got := find(t, s, "web", everything); got != nil {
			t.Errorf("other columns: got %v", got)
		}
		row := pod("shop", "web-1", "1")
		row.Cells = json.RawMessage(`["web-1","1/1","Running",null,"10.0.0.1"]`)
		put(t, w, wider, row)
		put(t, claim(t, s, "b", podDefinition), podDefinition, pod("shop", "web-0", "1"))
		if got := find(t, s, "kind:pod", everything); !slices.Equal(got, []string{"a/shop/web-1", "b/shop/web-0"}) {
			t.Errorf("two clusters with different columns: got %v", got)
		}
		if err := w.Drop(t.Context(), podDefinition.Resource); err != nil {
			t.Fatal(err)
		}
		if got := find(t, s, "", everything); !slices.Equal(got, []string{"b/shop/web-0"}) {
			t.Errorf("after Drop: got %v", got)
		}
		if _, err := w.Apply(t.Context(), Changes{Resource: podDefinition.Resource}); err == nil {
			t.Error("rows without a definition were taken")
		}
		bad := podDefinition
		bad.Columns = []feed.Column{{Name: "a\x00"}}
		if err := w.Define(t.Context(), bad); err == nil {
			t.Error("a definition with control characters was taken")
		}
	})
}

// TestEvilCluster sends what a cluster must not send. Its other rows, and other clusters, stay as they are.
func TestEvilCluster(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{MaxRows: 20})
		w := claim(t, s, "evil", podDefinition)
		bad := map[string]feed.Row{}
		for name, change := range map[string]func(*feed.Row){
			"cells of megabytes":  func(r *feed.Row) { r.Cells = []byte(`["` + strings.Repeat("a", 4<<20) + `","","",null]`) },
			"control characters":  func(r *feed.Row) { r.Name = "\x1b[2J" },
			"NUL":                 func(r *feed.Row) { r.Labels["a"] = "\x00" },
			"NUL in a cell":       func(r *feed.Row) { r.Cells = []byte(`["\u0000","","",null]`) },
			"half a surrogate":    func(r *feed.Row) { r.Images = []string{"\xed\xa0\x80"} },
			"a version of no use": func(r *feed.Row) { r.Version = "-1" },
			"no namespace":        func(r *feed.Row) { r.Namespace = "" },
			"a label of lines":    func(r *feed.Row) { r.Labels["a\nb=c"] = "" },
		} {
			row := pod("shop", "evil", "1")
			change(&row)
			bad[name] = row
		}
		for name, row := range bad {
			applied, err := w.Apply(t.Context(), Changes{Resource: podDefinition.Resource, Put: []feed.Row{row, pod("shop", "good", "1")}})
			if err != nil || applied.Refused != 1 || applied.Put != 1 || applied.Reason == "" {
				t.Errorf("%s: got %+v, %v", name, applied, err)
			}
		}
		if f := w.Feeds()[podDefinition.Resource]; f.Incomplete == "" {
			t.Error("the feed is not said to be incomplete")
		}
		// A lower version than before is the cluster's own business, as after a restored backup.
		put(t, w, podDefinition, pod("shop", "good", "99"), pod("shop", "good", "3"))
		var endless []feed.Row
		for i := range 100 {
			endless = append(endless, pod("shop", fmt.Sprintf("n%d", i), "1"))
		}
		applied, err := w.Apply(t.Context(), Changes{Resource: podDefinition.Resource, Put: endless})
		if err != nil || applied.Put != 19 || applied.Refused != 81 {
			t.Errorf("endless rows: got %+v, %v", applied, err)
		}
		// A full cluster still changes and deletes its rows.
		applied, err = w.Apply(t.Context(), Changes{Resource: podDefinition.Resource, Gone: []feed.Key{endless[0].Key}, Put: []feed.Row{pod("shop", "n1", "2"), pod("shop", "new", "1")}})
		if err != nil || applied.Put != 2 || applied.Gone != 1 || applied.Refused != 0 {
			t.Errorf("a change of a full cluster: got %+v, %v", applied, err)
		}
		if _, err := w.Apply(t.Context(), Changes{Resource: podDefinition.Resource, Put: make([]feed.Row, MaxChanges+1)}); err == nil {
			t.Error("too many changes were taken")
		}
		if got := find(t, s, "good", everything); !slices.Equal(got, []string{"evil/shop/good"}) {
			t.Errorf("got %v", got)
		}
		if err := w.Define(t.Context(), podDefinition); err != nil {
			t.Fatal(err)
		}
		if f := w.Feeds()[podDefinition.Resource]; f.Incomplete != "" || f.Total != 20 {
			t.Errorf("after a new definition: got %+v", f)
		}
	})
}

func TestResume(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{})
		rows := []feed.Row{pod("a", "1", "5"), pod("a", "2", "6"), pod("b", "1", "7")}
		put(t, claim(t, s, "c", podDefinition), podDefinition, rows...)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = at.open(t, Options{})
		w := claim(t, s, "c")
		if size, err := s.Size(t.Context()); err != nil || size <= 0 {
			t.Errorf("the store has %d bytes, %v", size, err)
		}
		digests, content, err := w.Have(t.Context(), podDefinition.Resource, func(namespace string) bool { return namespace == "a" })
		if err != nil {
			t.Fatal(err)
		}
		item := func(r feed.Row) feed.Item { return feed.ItemOf(r.UID, r.Version) }
		if want := (feed.Digest(0).Add(item(rows[1])).Add(item(rows[0]))); len(digests) != 2 || digests["a"] != want || digests["b"] != feed.Digest(0).Add(item(rows[2])) {
			t.Errorf("got %v", digests)
		}
		items, err := w.Items(t.Context(), podDefinition.Resource, "a")
		if err != nil || len(items) != 2 || items[rows[1].Key] != item(rows[1]) {
			t.Errorf("got %v, %v", items, err)
		}
		said, err := feed.Items(content["a"])
		if err != nil || len(content) != 1 || len(said) != 2 || !slices.Contains(said, item(rows[1])) {
			t.Errorf("got %v, %v", content, err)
		}
		if digests, _, err := w.Have(t.Context(), nodeDefinition.Resource, func(string) bool { return true }); len(digests) != 0 || err != nil {
			t.Errorf("of a resource without rows: %v, %v", digests, err)
		}
	})
}

// TestDefinitionsGo changes what a resource is like, over and over.
func TestDefinitionsGo(t *testing.T) {
	eachEngine(t, func(t *testing.T, at location) {
		s := at.open(t, Options{})
		a, b, other := claim(t, s, "a"), claim(t, s, "b", nodeDefinition), at.open(t, Options{})
		put(t, b, nodeDefinition, node("node-1"))
		for round := range 3 {
			d := podDefinition
			d.Version = fmt.Sprint("v", round%2)
			if err := a.Define(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			put(t, a, d, pod("shop", "web-0", "1"))
			for _, replica := range []*Store{s, other} {
				if err := replica.DropDefinitions(t.Context()); err != nil {
					t.Fatal(err)
				}
				found, _, err := replica.Search(t.Context(), SearchOptions{Query: parse(t, ""), Rights: everything})
				if err != nil || len(found) != 2 {
					t.Fatal(found, err)
				}
				for _, f := range found {
					if want := map[string]string{"Pod": d.Version, "Node": "v1"}[f.Definition.Kind]; f.Definition.Version != want {
						t.Errorf("round %d: %s is of version %q", round, f.Name, f.Definition.Version)
					}
				}
			}
			var n int
			if err := s.reads.QueryRowContext(t.Context(), `SELECT count(*) FROM definition`).Scan(&n); err != nil || n != 2 {
				t.Errorf("round %d: there are %d definitions, %v", round, n, err)
			}
		}
		// Without any feed, the last one is left.
		for _, name := range []string{"a", "b"} {
			if err := s.Remove(t.Context(), Cluster{name, "uid-" + name}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.DropDefinitions(t.Context()); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := s.reads.QueryRowContext(t.Context(), `SELECT count(*) FROM definition`).Scan(&n); err != nil || n != 1 {
			t.Errorf("there are %d definitions, %v", n, err)
		}
	})
}
