package index

import (
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

func TestGoodFor(t *testing.T) {
	for cell, want := range map[string]time.Duration{
		"3 (5m ago)": 30 * time.Second, "5m": 30 * time.Second, "2d3h": 51 * time.Hour / 10, "1s": leastGood, "0s": leastGood, "3y": 3 * 365 * 24 * time.Hour / 10,
		"": 0, "3": 0, "1/1": 0, "Running": 0, "5m x": 0, "100Mi": 0, "<none>": 0, "99999999999999999999s": 100 * time.Second, "1m2m3m": 0,
	} {
		if got := goodFor(cell); got != want {
			t.Errorf("%q: got %s, want %s", cell, got, want)
		}
	}
}

func TestRefresherOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefresher()
		due := func(name string, d time.Duration) row {
			return row{Row: feed.Row{Key: feed.Key{Name: name}}, due: d}
		}
		r.add([]row{due("late", time.Hour), due("early", time.Minute), due("changed", time.Second), due("gone", time.Second)})
		r.add([]row{due("changed", 2*time.Minute), due("gone", 0)})
		for _, want := range []struct {
			after time.Duration
			name  string
		}{{59 * time.Second, ""}, {time.Second, "early"}, {0, ""}, {time.Minute, "changed"}, {time.Hour, "late"}, {time.Hour, ""}} {
			time.Sleep(want.after)
			if key, _ := r.next(); key.Name != want.name {
				t.Errorf("after %s: got %q, want %q", want.after, key.Name, want.name)
			}
		}
	})
}

// TestAnswerAfterChange has a row that was asked for when the watch says something newer of it.
func TestAnswerAfterChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent int
		f := newFollower(nil, feed.Known{Resource: pods}, func(*feed.Message) error { sent++; return nil })
		f.Definition = feed.Definition{Resource: pods}
		answer := &table{}
		answer.Rows = append(answer.Rows, struct {
			Cells  []any  `json:"cells"`
			Object object `json:"object"`
		}{Cells: []any{}})
		answer.Rows[0].Object.Metadata.Name, answer.Rows[0].Object.Metadata.UID, answer.Rows[0].Object.Metadata.ResourceVersion = "web", "u", "1"
		ask := func() {
			f.refresh.add([]row{{Row: feed.Row{Key: feed.Key{Name: "web"}}, due: time.Second}})
			time.Sleep(time.Second)
			if _, ok := f.refresh.next(); !ok {
				t.Fatal("nothing is due")
			}
		}
		ask()
		if err := f.answer(answer); err != nil || sent != 1 {
			t.Errorf("sent %d, %v", sent, err)
		}
		ask()
		f.refresh.add([]row{{Row: feed.Row{Key: feed.Key{Name: "web"}}}})
		if err := f.answer(answer); err != nil || sent != 1 {
			t.Errorf("after a change: sent %d, %v", sent, err)
		}
	})
}
