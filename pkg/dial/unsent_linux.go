package dial

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unsent bounds how many bytes wait in the kernel until the network takes them.
// Requests that share a transport take turns above the kernel; what is in its
// queue goes first, whatever comes later. Linux lets that queue grow to 4 MiB,
// half a minute at 1 Mbit/s. What is sent and not acknowledged does not count, so
// a long link is used in full.
//
// The bound is what the transport takes in unsentTime, between leastUnsent and
// mostUnsent: a transport that is woken for every record would not fill a fast
// link, and 128 KiB are five seconds where four downloads share 1 Mbit/s.
type unsent struct {
	bound int
	bytes int // written since then
	since time.Time
}

const (
	unsentTime  = 100 * time.Millisecond
	leastUnsent = 16 << 10
	mostUnsent  = 128 << 10
	// unsentSample is the number of bytes after which the rate is measured: more than
	// an idle transport takes at once on a slow link.
	unsentSample = 64 << 10
)

// wrote notes a write of n bytes that began and ended at these times, and reports
// whether the bound has changed. It is halved and less at once, and doubled at most:
// the first bytes after a pause go into empty queues, however slow the link is.
func (u *unsent) wrote(n int, began, ended time.Time) (changed bool) {
	if u.bytes == 0 {
		u.since = began
	}
	if u.bytes += n; u.bytes < unsentSample {
		return false
	}
	took := max(ended.Sub(u.since), time.Microsecond)
	within := int(int64(u.bytes) * int64(unsentTime) / int64(took))
	bound := max(leastUnsent, min(within, 2*u.bound, mostUnsent))
	u.bytes = 0
	changed = bound > u.bound || bound <= u.bound/2
	if changed {
		u.bound = bound
	}
	return changed
}

// apply has the kernel keep to the bound.
func (u *unsent) apply(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, u.bound)
	})
}
