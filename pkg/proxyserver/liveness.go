package proxyserver

import (
	"context"
	"sync"
	"time"
)

const (
	// pingAfter is how long an agent or a peer may leave a dial unanswered before
	// it is pinged, and then how long it may leave the ping unanswered before it
	// is suspect. A target that is slow to accept is the usual reason for the
	// first wait and never for the second.
	pingAfter = time.Second
	// pingTimeout bounds one ping. A suspect is pinged again and again until it
	// answers.
	pingTimeout = 5 * time.Second
)

// liveness tells whether an agent or a peer answers. TCP does not tell for half
// a minute when packets vanish, and the control session's pings do not either.
//
// A dial that has waited for 1 s makes the server ping the
// agent, and after another second without an answer the agent is suspect. The dial then
// goes to the next agent of the cluster, and after those to the peers, while the first
// one may still answer; the connection that loses is closed. If none of them has a
// connection, the dial looks every second for agents that have come since, here and at
// peers, instead of waiting for the first one until its time is over. A suspect is pinged until
// it answers, and until then it is asked last. A slow target makes no agent suspect,
// since the agent answers the ping, and is dialed once only.
type liveness struct {
	// ctx ends when the agent or peer is forgotten.
	ctx  context.Context
	ping func(ctx context.Context) error

	mu      sync.Mutex
	last    time.Time // of the last answer
	asked   time.Time // when check pinged last
	suspect bool
	pinging bool
}

// heard notes an answer, of whatever kind.
func (l *liveness) heard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.suspect = time.Now(), false
}

// isSuspect reports whether a dial and a ping went unanswered, and nothing was
// heard since.
func (l *liveness) isSuspect() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.suspect
}

// awaitAnswer watches a dial that begins now, and calls silent if the other side
// turns out to be suspect before stop is called.
func (l *liveness) awaitAnswer(silent func()) (stop func()) {
	w := &waitingDial{liveness: l, silent: silent}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(pingAfter, w.look)
	return w.stop
}

// waitingDial is a dial without an answer.
type waitingDial struct {
	liveness *liveness
	silent   func()

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	pinged  time.Time // zero unless an answer to a ping is due
}

func (w *waitingDial) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	if w.pinged = w.liveness.check(w.pinged); w.liveness.isSuspect() {
		w.silent()
		return
	}
	w.timer.Reset(pingAfter)
}

func (w *waitingDial) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}

// check is called every pingAfter while a dial waits, with its own last result.
// It pings, and makes a suspect of what was pinged at that time and was not
// heard of since. It returns when it pinged, or zero.
func (l *liveness) check(pinged time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case !pinged.IsZero():
		l.suspect = l.last.Before(pinged)
		return time.Time{}
	case now.Sub(l.last) < pingAfter:
		return time.Time{}
	case !l.pinging:
		l.pinging = true
		go l.pingUntilHeard()
	}
	l.asked = now
	return now
}

// pingUntilHeard pings until there was an answer of some kind since check pinged last. An answer
// to an earlier ping would not do: the dial that waits since makes a suspect all the same.
func (l *liveness) pingUntilHeard() {
	for {
		ctx, cancel := context.WithTimeout(l.ctx, pingTimeout)
		if l.ping(ctx) == nil {
			l.heard()
		}
		cancel()
		l.mu.Lock()
		if l.ctx.Err() != nil || !l.last.Before(l.asked) {
			l.pinging = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		// A ping that failed at once is not repeated at once.
		pause := time.NewTimer(pingAfter)
		select {
		case <-pause.C:
		case <-l.ctx.Done():
		}
		pause.Stop()
	}
}
