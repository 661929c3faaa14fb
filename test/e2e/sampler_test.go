package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// sample is one request, or one stretch of a watch between two breaks.
type sample struct {
	began, ended time.Time
	err          error
}

// sampler makes requests at fixed times, whether earlier ones have ended or not,
// and may follow a watch.
type sampler struct {
	// silence is that of the fault; it begins when quiet is set.
	silence time.Duration
	quiet   atomic.Bool
	waiting sync.WaitGroup

	mu       sync.Mutex
	requests []sample
	breaks   []sample
	changes  map[string]time.Time // of the ConfigMap, by the version that they made
	heard    map[string]time.Time
	last     string // version that the watch has come to
}

// requestLimit is how long a client waits. An answer later than this is none.
const requestLimit = 40 * time.Second

// wentWell returns how many requests have had a good answer.
func (s *sampler) wentWell() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if r.err == nil {
			n++
		}
	}
	return n
}

// ask sends requests by once, four times a second.
func (s *sampler) ask(ctx context.Context, once func(context.Context) error) {
	s.waiting.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for n := 1; ctx.Err() == nil; n++ {
			if burst := 8; s.quiet.Load() && n%burst == 0 {
				select {
				case <-ctx.Done():
				case <-time.After(s.silence):
				}
			}
			s.waiting.Go(func() {
				began := time.Now()
				limited, cancel := context.WithTimeout(context.Background(), requestLimit)
				defer cancel()
				err := once(limited)
				s.add(&s.requests, sample{began, time.Now(), err})
			})
			<-tick.C
		}
	})
}

// run asks a cluster, and follows the watch.
func (s *sampler) run(ctx context.Context, cfg *rest.Config) {
	s.ask(ctx, func(ctx context.Context) error { return suite.Once(ctx, cfg) })
	s.waiting.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			s.mu.Lock()
			version := s.last
			s.mu.Unlock()
			err := suite.WatchConfigMap(ctx, cfg, "default", "e2e-faults", version, s.hear)
			if ctx.Err() == nil {
				s.add(&s.breaks, sample{began, time.Now(), err})
			}
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	})
}

// change changes the ConfigMap that is watched four times a second, without the
// addon.
func (s *sampler) change(ctx context.Context, maps typedcorev1.ConfigMapInterface) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		if !s.quiet.Load() {
			changed, err := maps.Apply(ctx, corev1ac.ConfigMap("e2e-faults", "default").WithData(map[string]string{"n": fmt.Sprint(n)}), metav1.ApplyOptions{FieldManager: "e2e"})
			if err == nil {
				s.mu.Lock()
				s.changes[changed.ResourceVersion] = time.Now()
				s.mu.Unlock()
			}
		}
		<-tick.C
	}
}

// hear takes an event of the watch. A watch that breaks goes on from the last.
func (s *sampler) hear(raw json.RawMessage) error {
	var event struct {
		Type   string
		Object metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal(raw, &event); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if event.Type == "ERROR" {
		s.last = "" // which is too old
		return fmt.Errorf("the watch says %.200s", raw)
	}
	s.last = event.Object.ResourceVersion
	if _, twice := s.heard[s.last]; !twice {
		s.heard[s.last] = time.Now()
	}
	return nil
}

func (s *sampler) add(to *[]sample, one sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*to = append(*to, one)
}
