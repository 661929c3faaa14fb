package health

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

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
