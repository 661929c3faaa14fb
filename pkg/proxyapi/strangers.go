package proxyapi

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

const (
	// strangersRate and strangersBurst are how many requests per second, and how
	// many at once, one address may send with credentials that nobody has
	// vouched for yet. A credential counts until it was good for something once.
	strangersRate  = 20
	strangersBurst = 100
	// maxAddresses and maxCredentials bound what is remembered.
	maxAddresses   = 4096
	maxCredentials = 16384
	// refusalDelay is how long a refusal is held back, so that those who ask
	// again as soon as they are refused take little of the processor; maxHeld is
	// for how many at a time, as each holds memory.
	refusalDelay = 250 * time.Millisecond
	maxHeld      = 500
)

// strangers keeps a flood of bad credentials from costing those with good ones:
// the hub and the clusters are asked about few of them.
type strangers struct {
	known  *lru.Cache // by credential
	places *lru.Cache // by place
	held   chan struct{}

	mu        sync.Mutex
	addresses *lru.Cache // to *rate.Limiter
}

func newStrangers() *strangers {
	return &strangers{known: lru.New(maxCredentials), places: lru.New(maxCredentials), held: make(chan struct{}, maxHeld), addresses: lru.New(maxAddresses)}
}

// admit reports whether a request from address may go on with a credential,
// which may be empty.
func (s *strangers) admit(credential, address string) bool {
	if credential != "" {
		if _, ok := s.known.Get(credential); ok {
			return true
		}
	}
	return s.limiter(address).Allow()
}

// holdBack waits before a request is refused that was not admitted.
func (s *strangers) holdBack(ctx context.Context) {
	select {
	case s.held <- struct{}{}:
	default:
		return
	}
	defer func() { <-s.held }()
	timer := time.NewTimer(refusalDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// trust remembers a credential that was good for something: on the hub, or at a
// cluster if one is named.
func (s *strangers) trust(credential, cluster string) {
	if credential == "" {
		return
	}
	s.known.Add(credential, struct{}{})
	if cluster != "" {
		s.places.Add(place{credential, cluster}, struct{}{})
	}
}

// goodAt reports whether a cluster accepted a credential.
func (s *strangers) goodAt(credential, cluster string) bool {
	_, ok := s.places.Get(place{credential, cluster})
	return ok
}

// forget is for a known credential that a cluster does not accept any more.
func (s *strangers) forget(credential, cluster string) {
	s.known.Remove(credential)
	s.places.Remove(place{credential, cluster})
}

// place is a credential at a cluster.
type place struct{ credential, cluster string }

func (s *strangers) limiter(address string) *rate.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limiter, ok := s.addresses.Get(address); ok {
		return limiter.(*rate.Limiter)
	}
	limiter := rate.NewLimiter(strangersRate, strangersBurst)
	s.addresses.Add(address, limiter)
	return limiter
}
