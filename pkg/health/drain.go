package health

import (
	"context"
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
