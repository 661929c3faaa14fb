package httprelay

import (
	"slices"
	"time"
)

const (
	// crowd is how many requests share a connection before others wait for another one,
	// as long as there may be more. Requests that begin at the same moment would
	// otherwise stay on the first connection and share one flow's rate.
	crowd = 2
	// crowdWait and largeWait are how long a request waits for another
	// connection where it would have to share one with more, or one with a large
	// answer. On a slow link that is worse than to wait for a dial.
	crowdWait = 500 * time.Millisecond
	largeWait = 3 * time.Second
	// large is how much of an answer has passed when it counts as large. An answer
	// without a length counts from the beginning: agents set the length of short ones
	// (Coalesce).
	large = 16 << 10
)

// sharing says which connections are good enough for a request, while there may be more.
type sharing int

const (
	withFew  sharing = iota // less than crowd requests, none of them large
	withMany                // none of them large
	withAny
)

// goodEnough reports whether a request may go on c.
func (c *sharedConn) goodEnough(with sharing) bool {
	switch with {
	case withFew:
		return c.bulky == 0 && c.active < crowd
	case withMany:
		return c.bulky == 0
	}
	return true
}

// choose returns the connection with the fewest large bodies under way, and of those
// the one with the fewest requests, with a place on it; or the dial to wait for, if
// that one is not good enough and there may be more of them. A small request leads to no
// connection beside others.
func (s *Shared) choose(with sharing, small bool) (*sharedConn, *sharedDial) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var full []*sharedConn
	for {
		var least *sharedConn
		for _, c := range s.conns {
			if c.active < s.Streams && !c.wire.suspect() && !slices.Contains(full, c) && (least == nil || c.before(least)) {
				least = c
			}
		}
		if least == nil || !least.goodEnough(with) && s.mayGrow() {
			return nil, s.awaitLocked(small)
		}
		if least.Reserve() != nil { // it ends, or has all that its peer takes for now
			if full = append(full, least); least.active == 0 {
				s.closeLocked(least)
			}
			continue
		}
		if least.active++; least.active > 1 && !small {
			s.growLocked()
		}
		return least, nil
	}
}

// before reports whether a request is better off on c than on other.
func (c *sharedConn) before(other *sharedConn) bool {
	if c.bulky != other.bulky {
		return c.bulky < other.bulky
	}
	return c.active < other.active
}

// mayGrow reports whether there may be one more connection than there are.
func (s *Shared) mayGrow() bool { return len(s.conns) < s.Spread && !s.retired }

// growLocked makes one more connection if requests that share come close together.
func (s *Shared) growLocked() {
	now := time.Now()
	wanted := now.Sub(s.missed) < busy
	s.missed = now
	if wanted && s.mayGrow() && len(s.dialing) == 0 {
		s.dialLocked()
	}
}

// awaitLocked returns a dial to wait for: one of its own, if there may be so many
// connections. Those that begin at the same moment may all be large, unless they are known to
// be small.
func (s *Shared) awaitLocked(small bool) *sharedDial {
	var least *sharedDial
	for _, d := range s.dialing {
		if least == nil || d.waiting < least.waiting {
			least = d
		}
	}
	if least == nil || !small && least.waiting > 0 && len(s.conns)+len(s.dialing) < s.Spread {
		least = s.dialLocked()
	}
	least.waiting++
	return least
}

func (s *Shared) dialLocked() *sharedDial {
	d := &sharedDial{done: make(chan struct{})}
	s.dialing = append(s.dialing, d)
	go s.add(d)
	return d
}

// crowds notes that a request is large, so that others, which its body would delay, get
// another connection.
func (s *Shared) crowds(c *sharedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.bulky++
	free := slices.ContainsFunc(s.conns, func(c *sharedConn) bool { return c.bulky == 0 })
	if !free && s.mayGrow() && len(s.dialing) == 0 {
		s.dialLocked()
	}
}
