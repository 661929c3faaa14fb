package relay

import (
	"sync"
	"time"
)

// Latencies are what requests to clusters took, by cluster, and how many there were.
type Latencies struct {
	// Since is when the counts began. It tells those of one replica from another's.
	Since    time.Time
	mu       sync.Mutex
	clusters map[string]latency
}

// latency is a moving average, over about the last eight requests, and the number of all.
type latency struct {
	average  time.Duration
	requests int64
}

// NewLatencies returns Latencies of no cluster.
func NewLatencies() *Latencies {
	return &Latencies{Since: time.Now(), clusters: map[string]latency{}}
}

// Observe counts an answer of a cluster.
func (l *Latencies) Observe(cluster string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.clusters[cluster]
	if ok {
		took = last.average + (took-last.average)/8
	}
	l.clusters[cluster] = latency{took, last.requests + 1}
}

// Of is zero before the first request.
func (l *Latencies) Of(cluster string) (average time.Duration, requests int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.clusters[cluster]
	return one.average, one.requests
}

// Forget drops a cluster that is gone.
func (l *Latencies) Forget(cluster string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.clusters, cluster)
}
