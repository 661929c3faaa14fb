package proxyagent

import (
	"math/rand/v2"
	"time"
)

const (
	// quickMisses is how many dials in a row an agent that had no server makes
	// quickly, when they reach only servers that it has; quickDoublings bounds the
	// pauses between them.
	quickMisses    = 8
	quickDoublings = 5
	// calmWindow is the time in which an agent that has a server makes its next
	// attempt to reach another one. The whole fleet begins at the same moment, and
	// of two dials behind a load balancer one reaches a server that the agent has:
	// with 90 s, a thousand agents cost the others less than 50 handshakes a second.
	calmWindow = 90 * time.Second
	// calmMisses is how many attempts that window is for, for each server that there is: of
	// n servers every nth dial leads to the one that is missing. The window doubles with each
	// attempt after these up to calmWindowMost: a server that is missing for an hour is not
	// looked for every few seconds.
	calmMisses     = 5
	calmWindowMost = 5 * time.Minute
	// leastNotice is how long a server that drains goes on at least: agents do not come all
	// at once to another one, if it gives them no time.
	leastNotice = 5 * time.Second
	// retryWindow is the time in which an agent with another server dials
	// carriers to a server again that its dials did not lead to.
	retryWindow = time.Minute
)

// search decides when an agent that lacks a proxy server dials. It is quick for
// an agent that has no server, and until it has found all that there were or
// quickMisses dials in a row were in vain. Other agents have time: they dial at a random time
// within calmWindow of an event that all agents notice (a server drains, dies or is announced),
// and again until they have found the server. Half of a fleet of 1,000 has found a new server
// after 1 to 2 minutes, and 99 of 100 agents after 6 (two servers) to 12 minutes (four). If all
// servers of an agent drain, it looks for another one within half of the time that they say they
// wait, and at once when one of them asks for carriers because a user waits.
type search struct {
	backoff func(failures int) time.Duration
	random  func(most time.Duration) time.Duration // nil means rand.N

	total int // servers that there are, as one of them said last; 1 before any did

	quick  bool          // the agent had no server, and has not found all since
	misses int           // dials since the last one that led to another server
	notice time.Duration // how long the draining servers, if all drain, go on
	due    time.Time     // when the next dial is; zero if that is not drawn yet
}

func (s *search) within(window time.Duration) time.Duration {
	if s.random != nil {
		return s.random(window)
	}
	return rand.N(window)
}

// pause draws the time until the next dial. serving says that a server which
// does not drain is connected, and connected that any is.
func (s *search) pause(serving, connected bool) time.Duration {
	switch {
	case !serving && connected && s.misses == 0:
		return s.within(max(s.notice, time.Millisecond) / 2)
	case !serving && s.misses == 0, s.quick && s.misses == 0:
		return 0
	case !connected:
		return s.backoff(s.misses)
	case !serving, s.quick:
		return s.backoff(min(s.misses, quickDoublings))
	}
	window := calmWindow
	for misses := s.misses; misses >= calmMisses*max(s.total, 2) && window < calmWindowMost; misses-- {
		window *= 2
	}
	return s.within(min(window, calmWindowMost))
}

// dialed notes a dial, which is a miss until found is called.
func (s *search) dialed(serving bool) {
	s.due = time.Time{}
	if s.misses++; s.misses > quickMisses && s.quick && serving {
		s.quick, s.misses = false, 1
	}
}

// found notes a server that the agent did not have.
func (s *search) found() {
	s.misses = 0
	s.due = time.Time{}
}

// complete notes that no server lacks.
func (s *search) complete() {
	s.quick = false
	s.found()
}

// renew begins anew after so many misses, and keeps the time that was drawn if
// it is earlier.
func (s *search) renew(misses int, serving, connected bool) {
	s.quick = s.quick || !serving
	s.misses = misses
	if s.due.IsZero() {
		return
	}
	if due := time.Now().Add(s.pause(serving, connected)); due.Before(s.due) {
		s.due = due
	}
}

// hurry brings the next dial forward, because a user waits for a server.
func (s *search) hurry() {
	due := time.Now()
	if s.misses > 0 {
		due = due.Add(s.backoff(1))
	}
	if s.due.IsZero() || due.Before(s.due) {
		s.due = due
	}
}

// next is the time until the next dial.
func (s *search) next(serving, connected bool) time.Duration {
	if s.due.IsZero() {
		s.due = time.Now().Add(s.pause(serving, connected))
	}
	return time.Until(s.due)
}
