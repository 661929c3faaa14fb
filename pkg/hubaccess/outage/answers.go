package outage

import (
	"crypto/sha256"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/lru"
)

// pastAnswers remembers the latest answers, in a bounded number of bytes: the hub chooses how
// long one is.
type pastAnswers struct {
	limit int

	mu      sync.Mutex
	bytes   int
	answers *lru.Cache // of type pastAnswer, by the key of the question
}

type pastAnswer struct {
	value  any
	at     time.Time
	expiry time.Time
}

func newPastAnswers(limit int) *pastAnswers {
	p := &pastAnswers{limit: limit}
	p.answers = lru.NewWithEvictionFunc(0, func(_ lru.Key, a any) { p.bytes -= sizeOf(a.(pastAnswer).value) })
	return p
}

// get returns an answer that is not older than maxAge and has not expired.
func (p *pastAnswers) get(key [sha256.Size]byte, maxAge time.Duration) (any, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.answers.Get(key)
	if !ok {
		return nil, false
	}
	a, now := found.(pastAnswer), time.Now()
	if now.Sub(a.at) > maxAge || !a.expiry.IsZero() && !now.Before(a.expiry) {
		p.answers.Remove(key)
		return nil, false
	}
	return a.value, true
}

func (p *pastAnswers) put(key [sha256.Size]byte, value any, expiry time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers.Remove(key)
	p.answers.Add(key, pastAnswer{value: value, at: time.Now(), expiry: expiry})
	for p.bytes += sizeOf(value); p.bytes > p.limit; {
		p.answers.RemoveOldest()
	}
}

func (p *pastAnswers) drop(key [sha256.Size]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers.Remove(key)
}

// sizeOf is about how many bytes an answer takes.
func sizeOf(value any) int {
	const entry, text = 300, 16
	switch v := value.(type) {
	case *authenticator.Response:
		if v == nil {
			return entry
		}
		size := entry + len(v.User.GetName()) + len(v.User.GetUID())
		for _, group := range v.User.GetGroups() {
			size += text + len(group)
		}
		for key, values := range v.User.GetExtra() {
			size += 2*text + len(key)
			for _, value := range values {
				size += text + len(value)
			}
		}
		return size
	case decided:
		return entry + len(v.reason)
	}
	return entry
}

// decided is what an authorizer returned.
type decided struct {
	decision authorizer.Decision
	reason   string
}
