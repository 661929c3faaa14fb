package health

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
)

// TestAwaitLull has connections come every two seconds, for a while.
func TestAwaitLull(t *testing.T) {
	const quiet = 10 * time.Second
	for name, tc := range map[string]struct{ comeFor, timeout, want time.Duration }{
		"nobody comes":               {0, time.Hour, quiet},
		"they come for a while":      {7 * time.Second, time.Hour, 6*time.Second + quiet},
		"they never stop":            {time.Hour, time.Hour, 3 * quiet},
		"the process ends meanwhile": {time.Hour, 4 * time.Second, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				queue := connect.NewQueue(&net.TCPAddr{})
				defer queue.Close()
				arrivals := &Arrivals{Listener: queue}
				go func() {
					for {
						conn, err := arrivals.Accept()
						if err != nil {
							return
						}
						_ = conn.Close()
					}
				}()
				come := func() {
					ours, theirs := net.Pipe()
					defer ours.Close()
					queue.Hand(theirs)
				}
				come() // before the drain, which it must not shorten
				time.Sleep(time.Minute)
				ctx, cancel := context.WithTimeout(t.Context(), tc.timeout)
				defer cancel()
				began := time.Now()
				go func() {
					tick := time.NewTicker(2 * time.Second)
					defer tick.Stop()
					for {
						select {
						case <-tick.C:
						case <-ctx.Done():
							return
						}
						if time.Since(began) < tc.comeFor {
							come()
						}
					}
				}()
				arrivals.AwaitLull(ctx, quiet)
				if took := time.Since(began); took != tc.want {
					t.Errorf("waited %s, want %s", took, tc.want)
				}
				cancel()
				synctest.Wait() // until nobody comes any more
			})
		})
	}
}

// TestNoLull does not wait when it shall not.
func TestNoLull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		new(Arrivals).AwaitLull(t.Context(), 0)
		if took := time.Since(began); took != 0 {
			t.Errorf("waited %s, want no time", took)
		}
	})
}
