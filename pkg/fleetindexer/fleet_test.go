package fleetindexer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
)

// fakeHub has clusters with their UIDs. It has answered once it has any map.
type fakeHub struct {
	mu       sync.Mutex
	clusters map[string]string
}

func (h *fakeHub) set(clusters map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clusters = clusters
}

func (h *fakeHub) Synced() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clusters == nil {
		return errors.New("not yet")
	}
	return nil
}

func (h *fakeHub) Names() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.clusters))
}

func (h *fakeHub) UID(cluster string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.clusters[cluster]
}

func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, agents := newTestShared(t, fleetindex.Options{})
		// A cluster of which only the store knows.
		w, err := s.store.Claim(t.Context(), fleetindex.Cluster{Name: "z", UID: "uid-z"})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Define(t.Context(), podColumn); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Apply(t.Context(), fleetindex.Changes{Resource: pods, Put: rowsOf("web-0")}); err != nil {
			t.Fatal(err)
		}
		hub := &fakeHub{}
		f := &fleet{shared: s, hub: hub, owns: func(cluster string) bool { return cluster != "others" }, following: map[string]*followed{}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.run(ctx) }()
		time.Sleep(2 * sweepInterval)
		if got := rows(t, s); !slices.Equal(got, []string{"z/web-0@1"}) || agents.asked.Load() != 0 {
			t.Errorf("before the hub has answered: %v, asked %d times", got, agents.asked.Load())
		}
		hub.set(map[string]string{"a": "uid-a", "others": "uid-o"})
		first := agents.next(t)
		first.snapshot(rowsOf("web-1")...)
		time.Sleep(sweepInterval + lookInterval)
		if got := rows(t, s); first.cluster != "a" || !slices.Equal(got, []string{"a/web-1@1"}) || agents.asked.Load() != 1 {
			t.Errorf("got %v, asked %d times", got, agents.asked.Load())
		}
		// Another cluster takes the name.
		hub.set(map[string]string{"a": "uid-2"})
		second := agents.next(t)
		if got := rows(t, s); !first.hasEnded() || got != nil {
			t.Errorf("another cluster has %v of the former one", got)
		}
		second.snapshot(rowsOf("web-2")...)
		second.send(heartbeat)
		// And goes.
		hub.set(map[string]string{})
		time.Sleep(2 * lookInterval)
		if got := rows(t, s); !second.hasEnded() || got != nil {
			t.Errorf("a cluster that went has %v", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestEndWritesWhatWasHeard ends the process just after a heartbeat.
func TestEndWritesWhatWasHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, agents := newTestShared(t, fleetindex.Options{})
		f := &fleet{shared: s, hub: &fakeHub{clusters: map[string]string{"a": "uid-a"}}, owns: func(string) bool { return true }, following: map[string]*followed{}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.run(ctx) }()
		stream := agents.next(t)
		stream.snapshot(rowsOf("web-0")...)
		stream.send(heartbeat)
		heard := time.Now()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, listed := list(t, s); !listed[0].Heard.Equal(heard) {
			t.Errorf("heard at %v, want %v", listed[0].Heard, heard)
		}
	})
}
