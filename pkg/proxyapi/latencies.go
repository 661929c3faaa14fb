package proxyapi

import (
	"sync"
	"time"
)

// latencies are moving averages by cluster, over about the last eight requests.
type latencies struct {
	mu      sync.Mutex
	average map[string]time.Duration
}

func newLatencies() *latencies { return &latencies{average: map[string]time.Duration{}} }

func (l *latencies) observe(cluster string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.average[cluster]; ok {
		took = last + (took-last)/8
	}
	l.average[cluster] = took
}

// of is zero before the first request.
func (l *latencies) of(cluster string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.average[cluster]
}

func (l *latencies) forget(cluster string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.average, cluster)
}
