package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errNotYet = errors.New("not yet")

func TestTry(t *testing.T) {
	const limit = 10*time.Second + 50*time.Millisecond
	for _, tc := range []struct {
		name             string
		ended, cancelled bool
		readyAt          time.Duration
		want             error
		wantTook         time.Duration
	}{
		{name: "ready at once"},
		{name: "ready at once, though ended", ended: true},
		{name: "ready later", readyAt: 950 * time.Millisecond, wantTook: time.Second},
		{name: "too late", readyAt: time.Hour, want: errNotYet, wantTook: limit},
		{name: "ended", ended: true, readyAt: time.Hour, want: errNotYet},
		{name: "cancelled", cancelled: true, readyAt: time.Hour, want: errNotYet},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan struct{})
				if tc.ended {
					close(ended)
				}
				if tc.cancelled {
					cancel()
				}
				began := time.Now()
				err := Poll{Every: 100 * time.Millisecond, For: limit, Ended: ended}.Try(ctx, func() error {
					if time.Since(began) < tc.readyAt {
						return errNotYet
					}
					return nil
				})
				if took := time.Since(began); !errors.Is(err, tc.want) || took != tc.wantTook {
					t.Errorf("Try = %v after %s, want %v after %s", err, took, tc.want, tc.wantTook)
				}
			})
		})
	}
}

// TestUntilLooksAgain has a condition that becomes true on the way.
func TestUntilLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		Poll{Every: time.Second, For: time.Minute}.Until(t, "it was looked at five times", func() bool { looks++; return looks == 5 })
		if looks != 5 {
			t.Errorf("%d looks, want 5", looks)
		}
	})
}
