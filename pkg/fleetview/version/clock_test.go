package version

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		// The bubble's clock begins in 2000, before the first time with 16 digits.
		first := c.Next()
		if first != minTime {
			t.Errorf("before 2001: got %d, want %d", first, int64(minTime))
		}
		time.Sleep(2 * 366 * 24 * time.Hour)
		now := time.Now().UnixMicro()
		if got := c.Next(); got != now {
			t.Errorf("got %d, want the wall clock's %d", got, now)
		}
		if got := c.Next(); got != now+1 {
			t.Errorf("in the same µs: got %d, want %d", got, now+1)
		}
		c.After(now + 5_000_000)
		if got := c.Next(); got != now+5_000_001 {
			t.Errorf("after a time that is 5 s ahead: got %d, want %d", got, now+5_000_001)
		}
		c.After(now)
		if got := c.Next(); got != now+5_000_002 {
			t.Errorf("after a time that is past: got %d, want %d", got, now+5_000_002)
		}
		time.Sleep(6 * time.Second)
		if got, want := c.Next(), now+6_000_000; got != want {
			t.Errorf("when the wall clock has caught up: got %d, want %d", got, want)
		}
	})
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(2 * 366 * 24 * time.Hour)
		c := Clock{Replica: 7}
		now := time.Now().UnixMicro()
		for _, test := range []struct {
			ahead time.Duration
			want  bool
		}{{-time.Hour, true}, {aheadLimit, true}, {aheadLimit + time.Millisecond, false}, {time.Hour, false}} {
			at := now + test.ahead.Microseconds()
			if got := c.Follow(at); got != test.want {
				t.Errorf("%s ahead: got %v, want %v", test.ahead, got, test.want)
			}
			if got := c.Now(); (got.Time > at) != test.want || got != (Version{Time: got.Time, Replica: 7}) {
				t.Errorf("%s ahead: got %+v afterwards, want more of replica 7: %v", test.ahead, got, test.want)
			}
		}
	})
}

// TestFollowIsNoRatchet has a client that writes versions a little ahead of those that it gets. A
// clock that is ahead throws positions of others away.
func TestFollowIsNoRatchet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(2 * 366 * 24 * time.Hour)
		var c Clock
		for range 1000 {
			c.Follow(c.Next() + (aheadLimit - time.Second).Microseconds())
		}
		if ahead := time.Duration(c.Next()-time.Now().UnixMicro()) * time.Microsecond; ahead > aheadLimit+time.Second {
			t.Errorf("a client has pushed the clock %s ahead, want %s at most", ahead, aheadLimit)
		}
		// The clock follows another replica's versions, which may be said again.
		far := c.Next() + time.Hour.Microseconds()
		c.After(far)
		if !c.Follow(far) || c.Next() <= far {
			t.Error("a time that a replica has issued is not followed again")
		}
	})
}

func TestClockConcurrent(t *testing.T) {
	const goroutines, times = 8, 1000
	var c Clock
	got := make([][]int64, goroutines)
	var group sync.WaitGroup
	for i := range goroutines {
		group.Go(func() {
			for range times {
				got[i] = append(got[i], c.Next())
			}
		})
	}
	group.Wait()
	for i, own := range got {
		if !slices.IsSorted(own) {
			t.Errorf("goroutine %d: got times that do not grow", i)
		}
	}
	all := slices.Concat(got...)
	slices.Sort(all)
	if distinct := len(slices.Compact(all)); distinct != goroutines*times {
		t.Errorf("got %d different times, want %d", distinct, goroutines*times)
	}
}
