package health

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAwaitIdle(t *testing.T) {
	for name, tc := range map[string]struct {
		minimum, busyFor, timeout time.Duration
		wantTook                  time.Duration
		wantLeft                  int
	}{
		"nothing to wait for":              {0, 0, time.Minute, 0, 0},
		"the minimum":                      {5 * time.Second, time.Second, time.Minute, 5 * time.Second, 0},
		"what is busy":                     {time.Second, 10 * time.Second, time.Minute, 10 * time.Second, 0},
		"the timeout":                      {time.Second, time.Hour, 20 * time.Second, 20 * time.Second, 3},
		"the timeout, before the minimum":  {time.Minute, time.Hour, 20 * time.Second, 20 * time.Second, 3},
		"the timeout, with nothing to end": {time.Minute, 0, 20 * time.Second, 20 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tc.timeout)
				defer cancel()
				began := time.Now()
				left := AwaitIdle(ctx, tc.minimum, func() int {
					if time.Since(began) < tc.busyFor {
						return 3
					}
					return 0
				})
				if took := time.Since(began); took != tc.wantTook || left != tc.wantLeft {
					t.Errorf("AwaitIdle = %d after %s, want %d after %s", left, took, tc.wantLeft, tc.wantTook)
				}
			})
		})
	}
}
