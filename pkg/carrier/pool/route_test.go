package pool

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// TestRoutesAreBounded names servers for more hosts than are remembered: those dialed
// last stay.
func TestRoutesAreBounded(t *testing.T) {
	var r routes
	for i := range 5 * maxRoutes {
		r.set(fmt.Sprint("host", i), []string{"a"})
		if r.of("often") == nil {
			r.set("often", []string{"b"})
			if i > 0 {
				t.Fatalf("a host that is dialed all the time is forgotten after %d others", i)
			}
		}
		if n := len(r.young) + len(r.old); n > 2*maxRoutes {
			t.Fatalf("%d hosts are remembered, want %d at most", n, 2*maxRoutes)
		}
	}
	if r.of("host0") != nil || r.of(fmt.Sprint("host", 5*maxRoutes-1)) == nil {
		t.Error("the first host is remembered, or the last one is not")
	}
	if r.set("often", nil); r.of("often") != nil {
		t.Error("a host is remembered of which a peer names no servers any more")
	}
}

// TestServersThatAreNotThere has servers that name one to which the address does not lead:
// dials succeed at once, and the carriers that are dialed in vain are few.
func TestServersThatAreNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		misleads := func(_ context.Context, p *carrier.Pending) {
			if conn, err := p.Accept(carrier.Endpoints{Servers: []string{"elsewhere"}}); err == nil {
				_ = conn.Close()
			}
		}
		servers := &balanced{servers: []*fakeServer{{name: "a", serve: misleads}, {name: "b", serve: misleads}}}
		pool := New(Config{Dial: servers.dial, Hedge: true, FailAlone: true})
		defer pool.Close()
		pool.Start()
		synctest.Wait()
		began := time.Now()
		for range 1000 {
			cn, err := pool.Open(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			_ = cn.Close()
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("1000 dials took %s, want no more than the pauses between them", took)
		}
		if stats := pool.Stats(); stats.Idle > pool.cfg.MinIdle+maxSpare {
			t.Errorf("%d carriers are idle, want %d at most", stats.Idle, pool.cfg.MinIdle+maxSpare)
		}
		servers.mu.Lock()
		dialed := servers.next
		servers.mu.Unlock()
		if most := pool.cfg.MinIdle + maxSpare + int(10*time.Second/replaceAgain) + 1; dialed > most {
			t.Errorf("%d carriers were dialed, want %d at most", dialed, most)
		}
		time.Sleep(2 * pool.cfg.IdleTime)
		synctest.Wait()
		if stats := pool.Stats(); stats.Idle != pool.cfg.MinIdle {
			t.Errorf("%d carriers are idle after a pause, want %d", stats.Idle, pool.cfg.MinIdle)
		}
	})
}
