package version

import (
	"sync/atomic"
	"time"
)

// Clock returns times for versions. The zero value is ready. Its methods are safe for
// concurrent use.
type Clock struct{ last atomic.Int64 }

// Next returns a time in µs since 1970, greater than every one before. It is the wall
// clock's if that is greater.
func (c *Clock) Next() int64 {
	// A clock that is not set yet still makes versions of 54 digits.
	now := max(time.Now().UnixMicro(), minTime)
	for {
		last := c.last.Load()
		next := min(max(now, last+1), maxTime)
		if c.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

// After makes Next return more than t from now on. A caller that has t from a client
// checks first how far ahead t is: the clock does not go back.
func (c *Clock) After(t int64) {
	t = min(t, maxTime-1)
	for {
		last := c.last.Load()
		if last >= t || c.last.CompareAndSwap(last, t) {
			return
		}
	}
}
