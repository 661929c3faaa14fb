package outage

import (
	"container/list"
	"crypto/sha256"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// pastAnswers remembers the latest answers, in a bounded number of bytes.
type pastAnswers struct {
	limit int

	mu      sync.Mutex
	bytes   int
	order   *list.List // of *pastAnswer, the latest first
	answers map[[sha256.Size]byte]*list.Element
}

type pastAnswer struct {
	key    [sha256.Size]byte
	value  any
	at     time.Time
	expiry time.Time
	bytes  int
}

func newPastAnswers(limit int) *pastAnswers {
	return &pastAnswers{limit: limit, order: list.New(), answers: map[[sha256.Size]byte]*list.Element{}}
}

// get returns an answer that is not older than maxAge and has not expired.
func (p *pastAnswers) get(key [sha256.Size]byte, maxAge time.Duration) (any, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.answers[key]
	if !ok {
		return nil, false
	}
	a, now := e.Value.(*pastAnswer), time.Now()
	if now.Sub(a.at) > maxAge || !a.expiry.IsZero() && !now.Before(a.expiry) {
		p.remove(e)
		return nil, false
	}
	return a.value, true
}

func (p *pastAnswers) put(key [sha256.Size]byte, value any, expiry time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.answers[key]; ok {
		p.remove(e)
	}
	a := &pastAnswer{key: key, value: value, at: time.Now(), expiry: expiry, bytes: sizeOf(value)}
	p.answers[key] = p.order.PushFront(a)
	p.bytes += a.bytes
	for p.bytes > p.limit {
		p.remove(p.order.Back())
	}
}

func (p *pastAnswers) drop(key [sha256.Size]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.answers[key]; ok {
		p.remove(e)
	}
}

func (p *pastAnswers) remove(e *list.Element) {
	a := p.order.Remove(e).(*pastAnswer)
	delete(p.answers, a.key)
	p.bytes -= a.bytes
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
