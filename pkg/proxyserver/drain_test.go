package proxyserver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestDrainWaitsForAgents wants a server that drains to serve on until its
// agents have another one, and not for ever.
func TestDrainWaitsForAgents(t *testing.T) {
	for _, tc := range []struct {
		name           string
		leave, timeout time.Duration // when the last agent leaves, and when the drain ends
		want           time.Duration
		wantStayed     int
	}{
		{"no agent stays", 0, 10 * time.Minute, 0, 0},
		{"agents leave", 20 * time.Second, 10 * time.Minute, 20 * time.Second, 0},
		{"agents have nowhere to go", time.Hour, 10 * time.Minute, longestMove, 1},
		{"the drain is short", time.Hour, 10 * time.Second, 10 * time.Second, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tc.timeout)
				defer cancel()
				began := time.Now()
				stayed := waitForMoves(ctx, func() int {
					if time.Since(began) < tc.leave {
						return 1
					}
					return 0
				})
				if waited := time.Since(began); stayed != tc.wantStayed || waited != tc.want {
					t.Errorf("%d agents stayed after %s, want %d after %s", stayed, waited, tc.wantStayed, tc.want)
				}
			})
		})
	}
}
