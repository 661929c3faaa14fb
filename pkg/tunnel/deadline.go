package tunnel

import (
	"sync"
	"time"
)

// deadline is a point in time that can be moved while others wait for it. The
// zero value is no deadline.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	done  chan struct{}
}

// passed is closed when the deadline is over. It holds for the deadline as it
// is now: a channel that was taken before a deadline passed is closed even if
// the deadline is moved later.
func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done == nil {
		d.done = make(chan struct{})
	}
	return d.done
}

// set moves the deadline; the zero time means none.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.done // the timer fired and is about to close, or has closed, done
	}
	d.timer = nil
	if d.done == nil || isClosed(d.done) {
		d.done = make(chan struct{})
	}
	if t.IsZero() {
		return
	}
	done := d.done
	if left := time.Until(t); left > 0 {
		d.timer = time.AfterFunc(left, func() { close(done) })
		return
	}
	close(done)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
