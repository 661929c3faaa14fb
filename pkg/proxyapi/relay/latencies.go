package relay

import (
	"sync"
	"time"
)

// latencies are what requests to clusters took, by cluster, and how many there were.
type Latencies struct {
	// since is when the counts began. It tells those of one replica from another's.
	Since    time.Time
	mu       sync.Mutex
	clusters map[string]latency
}

// latency is a moving average, over about the last eight requests, and the number of all.
type latency struct {
	average  time.Duration
	requests int64
}

func NewLatencies() *Latencies {
	return &Latencies{Since: time.Now(), clusters: map[string]latency{}}
}

func (l *Latencies) Observe(cluster string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.clusters[cluster]
	if ok {
		took = last.average + (took-last.average)/8
	}
	l.clusters[cluster] = latency{took, last.requests + 1}
}

// of is zero before the first request.
func (l *Latencies) Of(cluster string) (average time.Duration, requests int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.clusters[cluster]
	return one.average, one.requests
}

func (l *Latencies) Forget(cluster string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.clusters, cluster)
}
