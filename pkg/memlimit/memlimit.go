// Package memlimit refuses new work while a process has used most of its memory limit,
// which protects the work that it has: a process that exceeds its container's limit is
// killed with all its connections.
//
// The limit is GOMEMLIMIT, which the charts set to the container's. Memory in use is
// what was alive at the last garbage collection, and the stacks: garbage fills the rest
// by design. New work is refused above four fifths of the limit, and accepted again
// below seven tenths. Meanwhile a collection every few seconds finds out what has
// ended; an idle process would make the next one after minutes. The kernel's buffers
// count towards a container's limit and are not visible here: the last fifth is for
// them.
package memlimit

import (
	"errors"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
)

const (
	refuseAbove = 0.8 // of the limit
	takeBelow   = 0.7 // of the limit
	// lookInterval and collectInterval bound what looking costs.
	lookInterval    = 100 * time.Millisecond
	collectInterval = 5 * time.Second
)

// ErrFull says that there is no memory for more.
var ErrFull = errors.New("more than 80 % of this pod's memory limit is used: try again, or raise the chart's value resources of this process")

// Gate is open while there is memory for more. Its zero value, and nil, have no
// limit.
type Gate struct {
	limit   float64
	used    func() float64 // bytes
	collect func()
	refused prometheus.Counter
	full    prometheus.Gauge

	mu                sync.Mutex
	looked, collected time.Time
	closed            bool
}

// New makes a gate for GOMEMLIMIT, and registers its metrics.
func New(registry prometheus.Registerer) *Gate {
	g := &Gate{
		limit:   float64(debug.SetMemoryLimit(-1)),
		used:    used,
		collect: func() { go runtime.GC() },
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cluster_proxy_memory_refusals_total", Help: "Connections and requests that were refused because most of the memory limit (GOMEMLIMIT) was used."}),
		full: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_memory_full", Help: "1 while connections and requests are refused because most of the memory limit (GOMEMLIMIT) is used."}),
	}
	if g.limit == math.MaxInt64 {
		g.limit = 0
	}
	registry.MustRegister(g.refused, g.full)
	return g
}

// Err returns ErrFull while new work has to be refused. It may be called from
// several goroutines.
func (g *Gate) Err() error {
	if g == nil || g.limit == 0 {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.looked) >= lookInterval {
		g.looked = now
		g.look(now)
	}
	if !g.closed {
		return nil
	}
	g.refused.Inc()
	return ErrFull
}

// look opens or closes the gate, and says so once.
func (g *Gate) look(now time.Time) {
	used := g.used()
	switch {
	case !g.closed && used > refuseAbove*g.limit:
		g.closed, g.collected = true, now
		g.full.Set(1)
		klog.Background().Info("Refusing new connections and requests: most of the memory limit is used", "used", int64(used), "limit", int64(g.limit))
	case g.closed && used < takeBelow*g.limit:
		g.closed = false
		g.full.Set(0)
		klog.Background().Info("Taking new connections and requests again", "used", int64(used), "limit", int64(g.limit))
	case g.closed && now.Sub(g.collected) >= collectInterval:
		g.collected = now
		g.collect()
	}
}

// used is what the process cannot do without.
func used() (sum float64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	for _, s := range samples {
		sum += float64(s.Value.Uint64())
	}
	return sum
}
