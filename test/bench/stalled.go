package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"
)

// stall opens n connections and then gets them stuck: with modeFlood the client
// does not read what the target sends, with modeStall the target does not read
// what the client sends. All are open before the first is stuck, since one that
// is may keep konnectivity from opening another. They end with the path.
func stall(ctx context.Context, p *path, mode byte, n int) error {
	var conns []net.Conn
	for range n {
		conn, err := p.dial(ctx)
		if err != nil {
			return fmt.Errorf("dialing what is to be stalled: %w", err)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		go func() {
			if _, err := conn.Write([]byte{mode}); err != nil || mode == modeFlood {
				return
			}
			for {
				if _, err := conn.Write(zeros[:32<<10]); err != nil {
					return
				}
			}
		}()
	}
	return nil
}

// besideStalled exchanges small messages for some seconds while four
// connections are stuck.
func besideStalled(mode byte) func(context.Context, *path) (sample, error) {
	return func(ctx context.Context, p *path) (sample, error) {
		if err := stall(ctx, p, mode, 4); err != nil {
			return nil, err
		}
		stop := make(chan struct{})
		timer := time.AfterFunc(3*time.Second, func() { close(stop) })
		defer timer.Stop()
		took, err := exchange(ctx, p, 0, stop)
		if err != nil {
			return nil, fmt.Errorf("exchanging beside stalled connections: %w", err)
		}
		if len(took) == 0 {
			return nil, fmt.Errorf("no exchange ended")
		}
		return sample{"worst ms": millis(slices.Max(took))}, nil
	}
}

// stalledMemory is what both relays hold for a connection that is stuck.
func stalledMemory(mode byte) func(context.Context, *path) (sample, error) {
	return func(ctx context.Context, p *path) (sample, error) {
		const n = 32
		// Once, so that what is made with the first connection is not counted.
		if _, err := exchange(ctx, p, 1, nil); err != nil {
			return nil, err
		}
		before, err := settled(ctx, p.relays)
		if err != nil {
			return nil, err
		}
		if err := stall(ctx, p, mode, n); err != nil {
			return nil, err
		}
		if err := steady(ctx, p.relays); err != nil {
			return nil, err
		}
		after, err := settled(ctx, p.relays)
		if err != nil {
			return nil, err
		}
		return sample{"KiB each": float64(after-before) / 1024 / n}, nil
	}
}
