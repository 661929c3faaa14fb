package dial

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unsent bounds how many bytes wait in the kernel until the network takes them.
// Requests that share a transport take turns above the kernel; what is in its
// queue goes first, whatever comes later. Linux lets that queue grow to 4 MiB,
// half a minute at 1 Mbit/s. Bytes that are sent and not acknowledged do not
// count, so a long link is used in full.
//
// The bound is what the transport takes in unsentTime, between leastUnsent and
// mostUnsent: a transport that is woken for every record would not fill a fast
// link, and 128 KiB are five seconds where four downloads share 1 Mbit/s.
//
// The kernel wakes a writer when half of the bound is sent. On a fast network 64 KiB are
// gone before a writer is awake, which costs throughput and CPU time. A transport that
// takes more than mostUnsent in fastTime may queue that, up to mostUnsentFast, which is
// what Linux allows by itself and takes 3.4 Gbit/s to reach. It must have
// taken fastBounds times the bound at this rate, pauses included, since a slow link
// seems fast until its queues are full.
type unsent struct {
	bound int
	bytes int // written since then
	since time.Time
	last  time.Time // a write ended
	// run is what was written since runSince, while bound is mostUnsent or more.
	run      int
	runSince time.Time
}

const (
	unsentTime  = 100 * time.Millisecond
	leastUnsent = 16 << 10
	mostUnsent  = 128 << 10
	// unsentSample is the number of bytes after which the rate is measured: more than
	// an idle transport takes at once on a slow link. It is the bound if that is more,
	// since a write waits for half of that at once, but not for longer than unsentTime.
	unsentSample = 64 << 10

	fastTime       = 10 * time.Millisecond
	mostUnsentFast = 4 << 20
	fastBounds     = 4
)

// wrote notes a write of n bytes that began and ended at these times, and reports
// whether the bound has changed. It is halved and less at once, and doubled at most:
// the first bytes after a pause go into empty queues, however slow the link is.
func (u *unsent) wrote(n int, began, ended time.Time) (changed bool) {
	if u.bytes == 0 || began.Sub(u.last) >= unsentTime {
		u.bytes, u.since = 0, began
	}
	u.bytes, u.last = u.bytes+n, ended
	took := ended.Sub(u.since)
	if u.bytes < unsentSample || u.bytes < u.bound && took < unsentTime {
		return false
	}
	before := u.bound
	switch taken := max(leastUnsent, within(unsentTime, u.bytes, took)); {
	case taken <= u.bound/2:
		u.bound, u.run = min(taken, mostUnsent), 0
	case u.bound < mostUnsent:
		u.bound = max(u.bound, min(taken, 2*u.bound, mostUnsent))
	default:
		u.grow(ended)
	}
	u.bytes = 0
	return u.bound != before
}

// grow lets a fast transport queue more than mostUnsent.
func (u *unsent) grow(now time.Time) {
	if u.run == 0 {
		u.runSince = u.since
	}
	if u.run += u.bytes; u.run >= fastBounds*u.bound {
		u.bound = max(u.bound, min(within(fastTime, u.run, now.Sub(u.runSince)), 2*u.bound, mostUnsentFast))
		u.run = 0
	}
}

// within returns how many bytes go in d where so many took that long.
func within(d time.Duration, bytes int, took time.Duration) int {
	return int(int64(bytes) * int64(d) / int64(max(took, time.Microsecond)))
}

// apply has the kernel keep to the bound.
func (u *unsent) apply(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, u.bound)
	})
}
