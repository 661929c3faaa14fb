package proxyserver

import (
	"context"
	"errors"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// errNoAgent is in konnectivity's words, which its clients look for.
var errNoAgent = &carrier.Error{Code: carrier.NoAgent, Message: "No agent available"}

// fullAgent is the refusal of an agent that takes no more connections: another one of its
// cluster may, while this one, if it has the fewest, would be asked first each time.
type fullAgent struct{ error }

func (f fullAgent) Unwrap() error { return f.error }

func isFull(err error) bool { return errors.As(err, new(fullAgent)) }

// servedElsewhere reports whether another agent, or another proxy server, may
// have a better answer.
func servedElsewhere(err error) bool {
	switch carrier.CodeOf(err) {
	case carrier.NoAgent, carrier.NoSuchCluster, carrier.Draining, carrier.CutOff, carrier.Protocol:
		return true
	}
	return isFull(err)
}

// lastAsked tells whether it is time to ask somebody (again).
type lastAsked struct {
	mu    sync.Mutex
	at    time.Time // when the last answer came, or did not
	under bool      // there is no answer yet
}

// begin reports whether to ask now, and notes it; end must be called then. A peer that
// takes long to answer is not due at once when it has: a dial would go on from one slow answer to the next.
func (l *lastAsked) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.under || time.Since(l.at) < lookAgain/2 {
		return false
	}
	l.under = true
	return true
}

func (l *lastAsked) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.under = time.Now(), false
}

// attempt opens a connection in one way. It calls silent when the other side takes
// so long that the next way should be tried as well.
type attempt func(ctx context.Context, silent func()) (*carrier.Conn, error)

// lookAgain is how often a dial that waits for a silent agent or peer looks whether
// there is another way meanwhile.
const lookAgain = time.Second

// hedge tries the attempts that next returns until next returns nil: the next
// one when one is refused in a way that others may not be, or is silent. The
// first connection wins, and so does the first refusal that would be the same
// elsewhere. The others are canceled, and what they open all the same is closed.
//
// While an attempt that was silent has no result, next is asked again every
// lookAgain: an agent may have found another server since.
//
// The first attempt runs in the caller's goroutine, because a dial rarely needs
// a second one.
func hedge(ctx context.Context, next func() attempt) (*carrier.Conn, error) {
	h := &hedged{next: next, over: make(chan struct{}), err: errNoAgent}
	h.ctx, h.cancel = context.WithCancel(ctx)
	defer h.cancel()
	h.try()
	<-h.over
	return h.conn, h.err
}

type hedged struct {
	ctx    context.Context
	cancel context.CancelFunc
	over   chan struct{} // closed when conn and err are final

	mu       sync.Mutex
	next     func() attempt
	looking  bool // for other ways, every lookAgain
	open     int  // attempts without a result
	finished bool
	conn     *carrier.Conn
	err      error
}

// try makes attempts, one after the other, until one of them decides the dial
// or there is none left.
func (h *hedged) try() {
	for {
		h.mu.Lock()
		if h.finished {
			h.mu.Unlock()
			return
		}
		one := h.next()
		if one == nil {
			if h.open == 0 {
				h.finish(nil, h.err)
			}
			h.mu.Unlock()
			return
		}
		h.open++
		h.mu.Unlock()
		if h.decide(one(h.ctx, h.look)) {
			return
		}
	}
}

// look tries other ways now, and every lookAgain until the dial is decided.
func (h *hedged) look() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.looking {
		return
	}
	h.looking = true
	go func() {
		again := time.NewTicker(lookAgain)
		defer again.Stop()
		for {
			go h.try()
			select {
			case <-h.over:
				return
			case <-again.C:
			}
		}
	}()
}

// decide records the result of an attempt and reports whether no other attempt
// needs to follow it.
func (h *hedged) decide(conn *carrier.Conn, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	switch {
	case h.finished && err == nil:
		conn.Abort(&carrier.Error{Code: carrier.Canceled, Message: "another way was faster"})
	case h.finished:
	case err == nil || !servedElsewhere(err):
		h.finish(conn, err)
	default:
		if !isFull(h.err) { // which says more than that others stop, or are gone
			h.err = err
		}
		return false
	}
	return true
}

// finish ends the dial; mu is held.
func (h *hedged) finish(conn *carrier.Conn, err error) {
	h.finished, h.conn, h.err = true, conn, err
	h.cancel()
	close(h.over)
}
