package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// sample is what one round of one measurement gave: named figures.
type sample map[string]float64

type measurement struct {
	name string
	run  func(ctx context.Context, s *subject) (sample, error)
}

const bulk = 512 << 20 // bytes moved for a throughput figure

func measurements() []measurement {
	return []measurement{
		{name: "write", run: func(ctx context.Context, s *subject) (sample, error) { return throughput(ctx, s, modeSink) }},
		{name: "read", run: func(ctx context.Context, s *subject) (sample, error) { return throughput(ctx, s, modeSource) }},
		{name: "dial", run: dials},
		{name: "exchange", run: exchanges},
		{name: "workers", run: workers},
		{name: "stalled readers", run: func(ctx context.Context, s *subject) (sample, error) { return besideStalled(ctx, s, modeFlood) }},
		{name: "stalled targets", run: func(ctx context.Context, s *subject) (sample, error) { return besideStalled(ctx, s, modeStall) }},
	}
}

// distantMeasurements are those with the agent a round trip away.
func distantMeasurements(roundTrip time.Duration) []measurement {
	return []measurement{
		{name: distantName(roundTrip, "write"), run: func(ctx context.Context, s *subject) (sample, error) { return throughput(ctx, s, modeSink) }},
		{name: distantName(roundTrip, "read"), run: func(ctx context.Context, s *subject) (sample, error) { return throughput(ctx, s, modeSource) }},
	}
}

// withCPU runs f and adds what the relays used meanwhile, divided by units.
func withCPU(s *subject, name string, units float64, f func() (sample, error)) (sample, error) {
	before, err := sum(s.relays, (*process).cpu)
	if err != nil {
		return nil, err
	}
	out, err := f()
	if err != nil {
		return nil, err
	}
	after, err := sum(s.relays, (*process).cpu)
	if err != nil {
		return nil, err
	}
	if len(s.relays) > 0 {
		out[name] = (after - before).Seconds() / units
	}
	return out, nil
}

func throughput(ctx context.Context, s *subject, mode byte) (sample, error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return withCPU(s, "cpu s/GiB", float64(bulk)/(1<<30), func() (sample, error) {
		began := time.Now()
		if _, err := conn.Write(header(mode, bulk)); err != nil {
			return nil, err
		}
		if mode == modeSink {
			for sent := 0; sent < bulk; sent += 32 << 10 {
				if _, err := conn.Write(zeros[:32<<10]); err != nil {
					return nil, err
				}
			}
			if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
				return nil, err
			}
		} else if n, err := io.CopyBuffer(onlyWriter{}, io.LimitReader(conn, bulk), make([]byte, 64<<10)); err != nil || n != bulk {
			return nil, fmt.Errorf("read %d bytes of %d: %w", n, bulk, err)
		}
		return sample{"Gbit/s": float64(bulk) * 8 / time.Since(began).Seconds() / 1e9}, nil
	})
}

// dials are a dial, one byte there and back, and a close, one after the other.
func dials(ctx context.Context, s *subject) (sample, error) {
	const n = 200
	var took []time.Duration
	return withCPU(s, "cpu ms/dial", n/1000.0, func() (sample, error) {
		for range n {
			began := time.Now()
			conn, err := s.dial(ctx)
			if err != nil {
				return nil, err
			}
			_, err = conn.Write([]byte{modeEcho, 1})
			if err == nil {
				_, err = io.ReadFull(conn, make([]byte, 1))
			}
			took = append(took, time.Since(began))
			conn.Close()
			if err != nil {
				return nil, err
			}
		}
		return sample{"p50 ms": millis(percentile(took, 50)), "p99 ms": millis(percentile(took, 99))}, nil
	})
}

func exchanges(ctx context.Context, s *subject) (sample, error) {
	took, err := exchange(ctx, s, 5000, nil)
	if err != nil {
		return nil, err
	}
	return sample{"p50 µs": micros(percentile(took, 50)), "p99 µs": micros(percentile(took, 99))}, nil
}

// exchange sends 256 bytes and waits for them to come back, n times or until
// stop is closed.
func exchange(ctx context.Context, s *subject, n int, stop <-chan struct{}) ([]time.Duration, error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte{modeEcho}); err != nil {
		return nil, err
	}
	var took []time.Duration
	buf := make([]byte, 256)
	for i := 0; n == 0 || i < n; i++ {
		select {
		case <-stop:
			return took, nil
		default:
		}
		began := time.Now()
		if _, err := conn.Write(buf); err != nil {
			return took, err
		}
		if _, err := io.ReadFull(conn, buf); err != nil {
			return took, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// workers are 64 at a time that dial, exchange 1 KiB and close.
func workers(ctx context.Context, s *subject) (sample, error) {
	const length = 3 * time.Second
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var done atomic.Int64
	errs := make(chan error, 64)
	var wg sync.WaitGroup
	began := time.Now()
	for range 64 {
		wg.Go(func() {
			buf := make([]byte, 1<<10)
			for ctx.Err() == nil {
				if err := oneShort(s, buf); err != nil {
					errs <- err
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	close(errs)
	if err := <-errs; err != nil {
		return nil, err
	}
	return sample{"/s": float64(done.Load()) / time.Since(began).Seconds()}, nil
}

func oneShort(s *subject, buf []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(append([]byte{modeEcho}, buf...)); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, buf)
	return err
}

// stallLimit is when an exchange beside stalled connections is given up.
const stallLimit = 45 * time.Second

// besideStalled exchanges small messages while four connections are stuck:
// with modeFlood the client does not read what the target sends, with modeStall
// the target does not read what the client sends.
func besideStalled(ctx context.Context, s *subject, mode byte) (sample, error) {
	const stalled = 4
	before, err := sum(s.relays, (*process).rss)
	if err != nil {
		return nil, err
	}
	var writers sync.WaitGroup
	defer writers.Wait()
	for range stalled {
		conn, err := s.dial(ctx)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte{mode}); err != nil {
			return nil, err
		}
		if mode == modeStall {
			writers.Go(func() {
				for {
					if _, err := conn.Write(zeros[:32<<10]); err != nil {
						return
					}
				}
			})
		}
	}
	stop := make(chan struct{})
	timer := time.AfterFunc(5*time.Second, func() { close(stop) })
	defer timer.Stop()
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, stallLimit)
	defer cancel()
	took, err := exchange(limited, s, 0, stop)
	if limited.Err() != nil && ctx.Err() == nil {
		// One did not come back at all; it would have taken longer still.
		took, err = append(took, time.Since(began)), nil
	}
	if len(took) == 0 {
		// Not even one came through before the time was up.
		took = append(took, time.Since(began))
	}
	if err != nil {
		return nil, fmt.Errorf("exchanging beside stalled connections: %w", err)
	}
	after, err := sum(s.relays, (*process).rss)
	if err != nil {
		return nil, err
	}
	out := sample{"worst ms": millis(slices.Max(took))}
	if len(s.relays) > 0 {
		out["KiB/conn"] = float64(after-before) / 1024 / stalled
	}
	return out, nil
}

func percentile(ds []time.Duration, p int) time.Duration {
	slices.Sort(ds)
	return ds[min(len(ds)-1, len(ds)*p/100)]
}

func millis(d time.Duration) float64 { return float64(d) / 1e6 }
func micros(d time.Duration) float64 { return float64(d) / 1e3 }
