package httprelay

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// hedgeAfter is how long a read waits for an answer on a kept connection before
	// it is sent another way as well. HTTP/1.1 has no ping, so a connection of which
	// nothing comes may be dead, or the answer slow.
	hedgeAfter = time.Second
	// hedgeEvery is how often that is done while answers are only slow: it costs a
	// second answer.
	hedgeEvery = 10 * time.Second
	// hedgeAgain is when those that had to wait for that ask again.
	hedgeAgain = 250 * time.Millisecond
)

// hedge is the second way of a request whose kept connection is silent. The first
// answer counts.
type hedge struct {
	kept *ReadPool
	// request is for the kept connection, which ends with giveUp.
	request *http.Request
	giveUp  context.CancelFunc
	other   func() (*http.Response, error)

	mu      sync.Mutex
	timer   *time.Timer
	ended   bool
	abandon context.CancelFunc // ends the second way; nil before it
	resp    *http.Response     // of the second way
}

func (k *ReadPool) hedge(other func(*http.Request) (*http.Response, error), r *http.Request) *hedge {
	ctx, cancel := context.WithCancel(r.Context())
	h := &hedge{kept: k, request: r.WithContext(ctx), giveUp: cancel}
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
	if !h.kept.mayHedge() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.ended {
			h.timer.Reset(hedgeAgain)
		}
		return
	}
	resp, err := h.other()
	if err != nil {
		return // the kept connection may still answer
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		_ = resp.Body.Close()
		return
	}
	h.resp = resp
	h.kept.silent()
	h.giveUp()
}

// end gives the answer of the second way, if it came first. It ends the second way
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
func (k *ReadPool) mayHedge() bool {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hedged.IsZero() && now.Sub(k.hedged) < hedgeEvery && (k.found.IsZero() || now.Sub(k.found) >= hedgeEvery) {
		return false
	}
	k.hedged = now
	return true
}

// silent notes that a connection did not answer what another answered. Those that
// are free now are given up: they may lead the same way.
func (k *ReadPool) silent() {
	k.mu.Lock()
	idle := k.idle
	k.idle, k.found = nil, time.Now()
	k.mu.Unlock()
	for _, c := range idle {
		c.timer.Stop()
		k.drop(c)
	}
}
