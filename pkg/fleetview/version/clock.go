package version

import (
	"sync/atomic"
	"time"
)

// Clock returns times for versions. The zero value is ready. Its methods are safe for
// concurrent use.
type Clock struct {
	// Replica is the number of this process, less than Replicas. Two replicas may have one
	// time; the number tells their versions apart.
	Replica uint32

	last atomic.Int64
}

// Now returns a version that is about no one object, at the Next time.
func (c *Clock) Now() Version { return Version{Time: c.Next(), Replica: c.Replica} }

// Next returns a time in µs since 1970, greater than every one before. It is the wall
// clock's if that is greater.
func (c *Clock) Next() int64 {
	// A clock that is not set yet still makes versions of 54 digits.
	now := max(time.Now().UnixMicro(), minTime)
	for {
		last := c.last.Load()
		next := min(max(now, last+1), MaxTime)
		if c.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

// aheadLimit is how far ahead of the wall clock a version from a client may be.
const aheadLimit = 10 * time.Second

// Follow makes Next return more than t, which is from a client. It reports false, and does
// not, if t is more than 10 s ahead of the wall clock and more than every time of this Clock:
// the clock does not go back, and anyone can write a t, one after the other too.
func (c *Clock) Follow(t int64) bool {
	if t > time.Now().Add(aheadLimit).UnixMicro() && t > c.last.Load() {
		return false
	}
	c.After(t)
	return true
}

// After makes Next return more than t from now on. It is for a t that a replica is known
// to have issued.
func (c *Clock) After(t int64) {
	t = min(t, MaxTime-1)
	for {
		last := c.last.Load()
		if last >= t || c.last.CompareAndSwap(last, t) {
			return
		}
	}
}
