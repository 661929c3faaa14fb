package liveness

import (
	"context"
	"sync"
	"time"
)

const (
	// PingAfter is how long something may stay unanswered before its peer is pinged.
	PingAfter = time.Second
	// PingTimeout is how long the ping may stay unanswered until the peer is suspect.
	PingTimeout = time.Second
	// pingBound bounds one ping: a peer that is slow may still answer it.
	pingBound = 5 * time.Second
)

// Peer tells whether another process answers. Its methods may be called by many goroutines.
type Peer struct {
	ctx  context.Context
	stop context.CancelFunc
	ping func(ctx context.Context) error

	mu      sync.Mutex
	last    time.Time // of the last answer
	asked   time.Time // when check pinged last
	suspect bool
	pinging bool
}

// New makes a Peer that is pinged by ping, which returns nil if there was an answer. Forget must
// be called when the Peer is not needed any more.
func New(ping func(ctx context.Context) error) *Peer {
	p := &Peer{ping: ping}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// Forget ends the pings.
func (p *Peer) Forget() { p.stop() }

// Context ends with Forget.
func (p *Peer) Context() context.Context { return p.ctx }

// Heard notes an answer, of whatever kind.
func (p *Peer) Heard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.suspect = time.Now(), false
}

// HeardSince reports whether there was an answer after some time.
func (p *Peer) HeardSince(then time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last.After(then)
}

// IsSuspect reports whether a ping went unanswered, and nothing was heard since.
func (p *Peer) IsSuspect() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.suspect
}

// AwaitAnswer watches something that is sent now, and calls silent if the peer turns out to be
// suspect before stop is called. silent must not block.
func (p *Peer) AwaitAnswer(silent func()) (stop func()) {
	w := &waiting{peer: p, silent: silent}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(PingAfter, w.look)
	return w.stop
}

// waiting is something without an answer.
type waiting struct {
	peer   *Peer
	silent func()

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	pinged  time.Time // zero unless an answer to a ping is due
}

func (w *waiting) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	if w.pinged = w.peer.check(w.pinged); w.peer.IsSuspect() {
		w.silent()
		return
	}
	next := PingAfter
	if !w.pinged.IsZero() {
		next = PingTimeout
	}
	w.timer.Reset(next)
}

func (w *waiting) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}

// check is called whenever an answer is due, with its own last result. It pings, and makes a
// suspect of a peer that was pinged at that time and was not heard since. It returns when it
// pinged, or zero.
func (p *Peer) check(pinged time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case !pinged.IsZero():
		p.suspect = p.last.Before(pinged)
		return time.Time{}
	case now.Sub(p.last) < PingAfter:
		return time.Time{}
	case !p.pinging:
		p.pinging = true
		go p.pingUntilHeard()
	}
	p.asked = now
	return now
}

// pingUntilHeard pings until there was an answer of some kind since check pinged last. An answer
// to an earlier ping would not do: what waits since then makes a suspect all the same.
func (p *Peer) pingUntilHeard() {
	for {
		ctx, cancel := context.WithTimeout(p.ctx, pingBound)
		if p.ping(ctx) == nil {
			p.Heard()
		}
		cancel()
		p.mu.Lock()
		if p.ctx.Err() != nil || !p.last.Before(p.asked) {
			p.pinging = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		// A ping that failed at once is not repeated at once.
		pause := time.NewTimer(PingAfter)
		select {
		case <-pause.C:
		case <-p.ctx.Done():
		}
		pause.Stop()
	}
}
