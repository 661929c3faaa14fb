package memlimit

import (
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestGateClosesAndOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		share, collections := 0.0, 0
		g := New(prometheus.NewRegistry(), "proxy API", "the chart's value resources.proxyAPI.limits.memory")
		g.limit, g.used, g.collect = 1000, func() float64 { return share * 1000 }, func() { collections++ }
		for _, step := range []struct {
			share float64
			full  bool
		}{{0.5, false}, {0.79, false}, {0.81, true}, {0.75, true}, {0.69, false}, {0.79, false}, {0.9, true}} {
			share = step.share
			time.Sleep(lookInterval)
			if err := g.Err(); (err != nil) != step.full {
				t.Errorf("at %v of the limit: %v, want full %t", step.share, err, step.full)
			}
		}
		// Between two looks nothing changes.
		share = 0
		if g.Err() == nil {
			t.Error("the gate looked again at once")
		}
		share = 0.9
		if collections > 0 {
			t.Errorf("%d collections within %s, want none", collections, collectInterval)
		}
		for range 20 {
			time.Sleep(time.Second)
			_ = g.Err()
		}
		if collections != 4 {
			t.Errorf("%d collections in 20 s of refusals, want one in %s", collections, collectInterval)
		}
		if got := testutil.ToFloat64(g.isFull); got != 1 {
			t.Errorf("the gauge is %v, want 1", got)
		}
		if got := testutil.ToFloat64(g.rejected); got != 24 {
			t.Errorf("%v refusals are counted, want 24", got)
		}
	})
}

// TestRefusalSaysWhatToDo wants the process, its pod, its share and limit, and what raises that.
func TestRefusalSaysWhatToDo(t *testing.T) {
	g := New(prometheus.NewRegistry(), "proxy API", "the chart's value resources.proxyAPI.limits.memory")
	g.host, g.limit, g.used, g.collect = "cluster-proxy-addon-user-1", 256<<20, func() float64 { return 0.82 * (256 << 20) }, func() {}
	err := g.Err()
	if err == nil {
		t.Fatal("there is memory for more")
	}
	for _, want := range []string{"proxy API", "pod cluster-proxy-addon-user-1", "82 %", "256Mi", "resources.proxyAPI.limits.memory", "try again"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the refusal is %q, want %q in it", err, want)
		}
	}
}

func TestNoLimit(t *testing.T) {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		t.Skipf("GOMEMLIMIT is %d", limit)
	}
	if err := New(prometheus.NewRegistry(), "proxy API", "the chart's value resources.proxyAPI.limits.memory").Err(); err != nil {
		t.Error(err)
	}
	if err := new(Gate).Err(); err != nil {
		t.Error(err)
	}
}

// TestUsed wants what is alive to count, and garbage not to.
func TestUsed(t *testing.T) {
	const size = 64 << 20
	runtime.GC()
	before := used()
	kept := make([]byte, size)
	runtime.GC()
	with := used()
	runtime.KeepAlive(kept)
	kept = nil
	runtime.GC()
	if after := used(); with-before < size*0.9 || with-after < size*0.9 {
		t.Errorf("used is %v, %v with %d more, %v without", before, with, size, after)
	}
}
