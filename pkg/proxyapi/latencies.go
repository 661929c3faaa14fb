package proxyapi

import (
	"sync"
	"time"
)

// latencies are moving averages by cluster, over about the last eight requests, and how many
// requests there were.
type latencies struct {
	// since is when the counts began. It tells those of one replica from another's.
	since   time.Time
	mu      sync.Mutex
	average map[string]time.Duration
	count   map[string]int64
}

func newLatencies() *latencies {
	return &latencies{since: time.Now(), average: map[string]time.Duration{}, count: map[string]int64{}}
}

func (l *latencies) observe(cluster string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.average[cluster]; ok {
		took = last + (took-last)/8
	}
	l.average[cluster] = took
	l.count[cluster]++
}

// of is zero before the first request.
func (l *latencies) of(cluster string) (average time.Duration, requests int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.average[cluster], l.count[cluster]
}

func (l *latencies) forget(cluster string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.average, cluster)
	delete(l.count, cluster)
}
