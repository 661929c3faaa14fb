// Package wait waits for what other goroutines and processes do. Each test says
// how often it looks and how long it waits; what it prints at the end names what
// did not come, and the last reason.
package wait

import (
	"context"
	"testing"
	"time"
)

// Poll says how often to look, and how long.
type Poll struct {
	// Every is the pause after a look.
	Every time.Duration
	// For is the limit; 0 is none. The last look may end after it.
	For time.Duration
	// Ended, if it is not nil, is closed when what is waited for cannot come any
	// more, and ends the wait.
	Ended <-chan struct{}
}

// Try calls ready until it returns nil, and returns nil then. It returns ready's
// last error when the limit has passed, Ended is closed or ctx is done.
func (p Poll) Try(ctx context.Context, ready func() error) error {
	var limit <-chan time.Time
	if p.For > 0 {
		timer := time.NewTimer(p.For)
		defer timer.Stop()
		limit = timer.C
	}
	pause := time.NewTimer(p.Every)
	defer pause.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		pause.Reset(p.Every)
		select {
		case <-ctx.Done():
			return err
		case <-p.Ended:
			return err
		case <-limit:
			return err
		case <-pause.C:
		}
	}
}

// Success waits until ready returns nil. It ends the test with ready's last error
// if that takes too long.
func (p Poll) Success(t testing.TB, what string, ready func() error) {
	t.Helper()
	if err := p.Try(context.Background(), ready); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// Until waits until condition returns true. It ends the test if that takes too
// long.
func (p Poll) Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if err := p.Try(context.Background(), asError(condition)); err != nil {
		t.Fatalf("timed out waiting until %s", what)
	}
}

func asError(condition func() bool) func() error {
	return func() error {
		if condition() {
			return nil
		}
		return context.DeadlineExceeded
	}
}
