package suite

import (
	"context"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// WaitUntil waits until ready returns nil, and returns its last error when limit
// has passed.
func WaitUntil(ctx context.Context, limit time.Duration, ready func() error) error {
	return wait.Poll{Every: 200 * time.Millisecond, For: limit}.Try(ctx, ready)
}

// Eventually waits until ready returns nil, and ends the test with its last error
// if that takes twice Timeout.
func Eventually(t testing.TB, what string, ready func() error) {
	t.Helper()
	wait.Poll{Every: 200 * time.Millisecond, For: 2 * Timeout}.Success(t, what, ready)
}

// Timeout is how long a scenario waits for something that has no reason to
// take long. It bounds a hang; it is not a promise of speed.
const Timeout = 2 * time.Minute
