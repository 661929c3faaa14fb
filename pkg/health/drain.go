package health

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// drainPoll is how often AwaitIdle looks.
const drainPoll = 100 * time.Millisecond

// AwaitIdle is the wait of every drain. It waits for the minimum, then until busy
// returns 0 or ctx ends, and returns the last result of busy. The minimum gives load
// balancers and peers the time to notice that the process is not ready.
func AwaitIdle(ctx context.Context, minimum time.Duration, busy func() int) (left int) {
	least := time.NewTimer(minimum)
	defer least.Stop()
	select {
	case <-least.C:
	case <-ctx.Done():
		return busy()
	}
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		if left = busy(); left <= 0 {
			return 0
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return left
		}
	}
}

// LongestLull is how many times as long as it is asked to AwaitLull waits at most.
const LongestLull = 3

// Arrivals is a listener that knows when its last connection came. A process that ends
// goes on listening for as long as it is still being sent connections: how long load
// balancers take to notice that it is not ready depends on them.
type Arrivals struct {
	net.Listener
	last atomic.Pointer[time.Time]
}

// Accept is net.Listener's.
func (a *Arrivals) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	if err == nil {
		now := time.Now()
		a.last.Store(&now)
	}
	return conn, err
}

// AwaitLull waits until no connection has come for the duration quiet, from the call on.
// It waits LongestLull times that at most: a load balancer may connect to the port for good, to
// see whether it is open. It ends with ctx.
func (a *Arrivals) AwaitLull(ctx context.Context, quiet time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, LongestLull*quiet)
	defer cancel()
	for wait := quiet; wait > 0; {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		wait = 0
		if last := a.last.Load(); last != nil {
			wait = time.Until(last.Add(quiet))
		}
	}
}
