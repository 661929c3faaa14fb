package httprelay

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// hedgeAfter is how long a read waits for an answer on a pooled connection before
	// it is sent another way as well. HTTP/1.1 has no ping: a silent connection may be
	// dead, or the answer slow.
	hedgeAfter = time.Second
	// hedgeEvery is the pause between hedges while answers are merely slow: each costs
	// a second answer.
	hedgeEvery = 10 * time.Second
	// hedgeAgain is when those that had to wait for that ask again.
	hedgeAgain = 250 * time.Millisecond
)

// hedge is the second way of a request whose pooled connection is silent. The first
// answer counts.
type hedge struct {
	pool *ReadPool
	// request is for the pooled connection, which ends with giveUp.
	request *http.Request
	giveUp  context.CancelFunc
	other   func() (*http.Response, error)

	mu      sync.Mutex
	timer   *time.Timer
	ended   bool
	abandon context.CancelFunc // ends the second way; nil before it
	resp    *http.Response     // of the second way
}

func (p *ReadPool) hedge(other func(*http.Request) (*http.Response, error), r *http.Request) *hedge {
	ctx, cancel := context.WithCancel(r.Context())
	h := &hedge{pool: p, request: r.WithContext(ctx), giveUp: cancel}
	h.other = func() (*http.Response, error) {
		ctx, cancel := context.WithCancel(r.Context())
		h.mu.Lock()
		h.abandon = cancel
		ended := h.ended
		h.mu.Unlock()
		if ended {
			cancel()
		}
		return other(r.WithContext(ctx))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(hedgeAfter, h.fire)
	return h
}

func (h *hedge) fire() {
	if !h.pool.mayHedge() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.ended {
			h.timer.Reset(hedgeAgain)
		}
		return
	}
	resp, err := h.other()
	if err != nil {
		return // the pooled connection may still answer
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		_ = resp.Body.Close()
		return
	}
	h.resp = resp
	h.pool.silent()
	h.giveUp()
}

// end returns the answer of the second way, if it came first. It ends the second way
// otherwise.
func (h *hedge) end() *http.Response {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer.Stop()
	h.ended = true
	if h.resp == nil && h.abandon != nil {
		h.abandon()
	}
	return h.resp
}

// mayHedge reports whether a request may be sent twice now.
func (p *ReadPool) mayHedge() bool {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hedged.IsZero() && now.Sub(p.hedged) < hedgeEvery && (p.found.IsZero() || now.Sub(p.found) >= hedgeEvery) {
		return false
	}
	p.hedged = now
	return true
}

// silent notes that a connection did not answer what another one answered. It closes
// the free ones, which may lead the same way.
func (p *ReadPool) silent() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.found = nil, time.Now()
	p.mu.Unlock()
	for _, c := range idle {
		c.timer.Stop()
		p.drop(c)
	}
}
