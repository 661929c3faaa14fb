package main

import (
	"context"
	"fmt"
	"time"
)

// settled is the memory that processes still hold after they have collected
// their garbage, and given back what they need no more. The Go runtime does so
// bit by bit, for some seconds.
func settled(ctx context.Context, relays []*process) (int64, error) {
	for range 2 {
		for _, p := range relays {
			if err := p.collect(); err != nil {
				return 0, fmt.Errorf("collecting garbage: %w", err)
			}
		}
	}
	if err := steady(ctx, relays); err != nil {
		return 0, err
	}
	return sum(relays, (*process).rss)
}

// steady waits until the memory of processes has hardly changed for 2 s.
func steady(ctx context.Context, relays []*process) error {
	var since time.Time
	var at int64
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := sum(relays, (*process).rss)
		if err != nil {
			return err
		}
		if now < at-at/100 || now > at+at/100 {
			at, since = now, time.Now()
		} else if time.Since(since) > 2*time.Second {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
