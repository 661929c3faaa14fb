// Package memlimit refuses new work while a process has used most of its memory limit,
// which protects the work that it has: a process that exceeds its container's limit is
// killed with all its connections.
//
// Proxy servers, the proxy API and agents have a gate. The addon manager takes no work that
// it could refuse: it only has the limit, for Go's garbage collector.
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
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
)

const (
	refuseAbove = 0.8 // of the limit
	takeBelow   = 0.7 // of the limit
	// lookInterval and collectInterval bound what looking costs.
	lookInterval    = 100 * time.Millisecond
	collectInterval = 5 * time.Second
)

// Gate is open while there is memory for more. Its zero value, and nil, have no
// limit.
type Gate struct {
	// process and host are whose memory it is, and raise is what raises the limit.
	process, host, raise string

	limit    float64
	used     func() float64 // bytes
	collect  func()
	rejected prometheus.Counter
	isFull   prometheus.Gauge

	mu                sync.Mutex
	looked, collected time.Time
	// full is the refusal while the gate is closed.
	full error
}

// New makes a gate for GOMEMLIMIT, and registers its metrics. Refusals name the process, and what
// raises its limit.
func New(registry prometheus.Registerer, process, raise string) *Gate {
	host, err := os.Hostname() // the pod's name
	if err != nil {
		host = "unknown"
	}
	g := &Gate{
		process: process, host: host, raise: raise,
		limit:   float64(debug.SetMemoryLimit(-1)),
		used:    used,
		collect: func() { go runtime.GC() },
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cluster_proxy_memory_rejected_total", Help: "Connections and requests that were refused because most of the memory limit (GOMEMLIMIT) was used."}),
		isFull: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_proxy_memory_full", Help: "1 while connections and requests are refused because most of the memory limit (GOMEMLIMIT) is used."}),
	}
	if g.limit == math.MaxInt64 {
		g.limit = 0
	}
	registry.MustRegister(g.rejected, g.isFull)
	return g
}

// Err says why new work has to be refused, if it has to be. It may be called from several
// goroutines.
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
	if g.full != nil {
		g.rejected.Inc()
	}
	return g.full
}

// refusal names the pod, how much of its limit it uses, and what raises that.
func (g *Gate) refusal(used float64) error {
	return fmt.Errorf("%s pod %s uses %.0f %% of its memory limit of %s and takes nothing new: try again, or raise %s",
		g.process, g.host, 100*used/g.limit, resource.NewQuantity(int64(g.limit), resource.BinarySI), g.raise)
}

// look opens or closes the gate, and says so once.
func (g *Gate) look(now time.Time) {
	used := g.used()
	switch {
	case g.full == nil && used > refuseAbove*g.limit:
		g.full, g.collected = g.refusal(used), now
		g.isFull.Set(1)
		klog.Background().Info("Refusing new connections and requests: most of the memory limit is used", "used", int64(used), "limit", int64(g.limit))
	case g.full != nil && used < takeBelow*g.limit:
		g.full = nil
		g.isFull.Set(0)
		klog.Background().Info("Taking new connections and requests again", "used", int64(used), "limit", int64(g.limit))
	case g.full != nil:
		g.full = g.refusal(used)
		if now.Sub(g.collected) >= collectInterval {
			g.collected = now
			g.collect()
		}
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
