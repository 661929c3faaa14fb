package handshakes

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"
)

// longestRest bounds what a pause of the whole machine makes of that.
const longestRest = 100 * time.Millisecond

// orderly is how long handshakes of a source may wait in their order: half of the
// time that peers have for one.
const orderly = 5 * time.Second

// knownShare of the turns for first flights go to known sources while handshakes
// of unknown ones wait as well: all but one of knownShare.
const knownShare = 4

// class is the priority of a handshake. Lower classes are served first.
type class int

const (
	// awaited handshakes are those that users wait for. They have turns of their
	// own, which do not rest.
	awaited class = iota
	// begun handshakes have had a turn: completing them frees memory and saves the work
	// of both sides.
	begun
	// known and unknown are first flights, from sources that a verified peer came
	// from before, and from others.
	known
	unknown
	classes
)

// turns decides which handshake is worked on next. Begun ones come before new
// ones, and new ones leave one turn free, so that a begun one never waits for the
// rest of one: a peer that has only sent a ClientHello has shown nothing yet. They leave no
// more, because the first flight is most of the work where sessions are resumed.
// Within a class the sources take turns, so a
// flood from one of them delays that one. A source is served in the order in which
// its handshakes came, as long as that is in time for all of them: behind one
// address there may be a whole fleet, and each handshake that its peer gives up is
// made twice. After that the newest is served first, since its peer is the least
// likely to have given up.
type turns struct {
	limit int // turns at a time
	rest  int // see Options

	mu      sync.Mutex
	used    int // turns that are held or rest, awaited ones aside
	firsts  int // those of them for first flights
	awaited int // turns of awaited handshakes
	served  int // first flights, for knownShare
	waiting [classes]fairQueue
}

func newTurns(limit, rest int) *turns { return &turns{limit: limit, rest: rest} }

// turn is one handshake's place in turns. One goroutine uses it.
type turn struct {
	source  netip.Prefix
	class   class
	granted chan struct{} // gets a value when the turn is taken
	gone    chan struct{} // closed when the handshake must end

	since time.Time // when it began to wait

	held  class // while it is taken
	taken time.Time
}

func newTurn(source netip.Prefix, c class) *turn {
	return &turn{source: source, class: c, granted: make(chan struct{}, 1), gone: make(chan struct{})}
}

// take waits for a turn until late, or until the handshake must end.
func (t *turns) take(one *turn, late <-chan time.Time) error {
	one.since = time.Now()
	t.mu.Lock()
	t.waiting[one.class].push(one)
	t.grant()
	t.mu.Unlock()
	var err error
	select {
	case <-one.granted:
		one.begin()
		return nil
	case <-late:
		err = os.ErrDeadlineExceeded
	case <-one.gone:
		err = net.ErrClosed
	}
	t.mu.Lock()
	removed := t.waiting[one.class].remove(one)
	t.mu.Unlock()
	if !removed { // it was granted meanwhile
		<-one.granted
		one.begin()
		t.giveBack(one)
	}
	return err
}

// begin notes that the turn is held.
func (one *turn) begin() {
	one.held, one.taken = one.class, time.Now()
	if one.class > begun {
		one.class = begun
	}
}

// grant hands free turns to the handshakes that wait; mu is held.
func (t *turns) grant() {
	for {
		c, ok := t.next()
		if !ok {
			return
		}
		switch {
		case c == awaited:
			t.awaited++
		case c == begun:
			t.used++
		default:
			t.used, t.firsts, t.served = t.used+1, t.firsts+1, t.served+1
		}
		t.waiting[c].pop().granted <- struct{}{}
	}
}

// next is the class whose turn it is, if there is a turn for any.
func (t *turns) next() (class, bool) {
	switch {
	case t.waiting[awaited].n > 0 && t.awaited < max(1, t.limit/2):
		return awaited, true
	case t.used >= t.limit:
		return 0, false
	case t.waiting[begun].n > 0:
		return begun, true
	case t.firsts >= max(1, t.limit-1):
		return 0, false
	case t.waiting[unknown].n > 0 && (t.waiting[known].n == 0 || t.served%knownShare == 0):
		return unknown, true
	case t.waiting[known].n > 0:
		return known, true
	}
	return 0, false
}

// giveBack ends a turn, which rests then. It does nothing without one.
func (t *turns) giveBack(one *turn) {
	if one.taken.IsZero() {
		return
	}
	rest := min(time.Duration(t.rest)*time.Since(one.taken), longestRest)
	held := one.held
	one.taken = time.Time{}
	if held == awaited || rest <= 0 {
		t.free(held)
		return
	}
	time.AfterFunc(rest, func() { t.free(held) })
}

func (t *turns) free(held class) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch held {
	case awaited:
		t.awaited--
	case begun:
		t.used--
	default:
		t.used, t.firsts = t.used-1, t.firsts-1
	}
	t.grant()
}

// fairQueue serves sources in turn, and of each the oldest handshake first, or the
// newest while the oldest has waited for longer than orderly. Its zero value is empty.
type fairQueue struct {
	n       int
	sources map[netip.Prefix]*sourceQueue
	order   []*sourceQueue // each of sources once
}

type sourceQueue struct {
	source  netip.Prefix
	waiting []*turn // oldest first
}

func (q *fairQueue) push(one *turn) {
	if q.sources == nil {
		q.sources = map[netip.Prefix]*sourceQueue{}
	}
	s := q.sources[one.source]
	if s == nil {
		s = &sourceQueue{source: one.source}
		q.sources[one.source] = s
		q.order = append(q.order, s)
	}
	s.waiting = append(s.waiting, one)
	q.n++
}

// pop takes the next one; there must be one.
func (q *fairQueue) pop() *turn {
	for {
		s := q.order[0]
		q.order[0] = nil
		q.order = q.order[1:]
		if len(s.waiting) == 0 { // all of it was removed
			delete(q.sources, s.source)
			continue
		}
		i := 0
		if time.Since(s.waiting[0].since) > orderly {
			i = len(s.waiting) - 1
		}
		one := s.waiting[i]
		s.waiting = slices.Delete(s.waiting, i, i+1)
		q.order = append(q.order, s)
		q.n--
		return one
	}
}

// remove reports whether one was in the queue.
func (q *fairQueue) remove(one *turn) bool {
	s := q.sources[one.source]
	if s == nil {
		return false
	}
	for i, other := range s.waiting {
		if other == one {
			s.waiting = slices.Delete(s.waiting, i, i+1)
			q.n--
			return true
		}
	}
	return false
}
