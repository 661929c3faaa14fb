package filewatch

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := errors.New("first"), errors.New("second")
		loads := []struct {
			changed bool
			err     error
		}{{true, nil}, {false, nil}, {false, first}, {false, first}, {false, second}, {true, nil}, {false, second}, {false, nil}, {false, second}}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		began, next := time.Now(), 0
		var got []string
		loop := Loop{
			Interval: time.Second,
			Load: func() (bool, error) {
				if since := time.Since(began); since != time.Duration(next)*time.Second {
					t.Errorf("load %d after %s, want one at once and one each second", next, since)
				}
				load := loads[next]
				if next++; next == len(loads) {
					stop()
				}
				return load.changed, load.err
			},
			Changed: func() { got = append(got, "changed") },
			Failed:  func(err error) { got = append(got, err.Error()) },
		}
		if err := loop.Run(ctx); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if want := []string{"changed", "first", "second", "changed", "second", "second"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
