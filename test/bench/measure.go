package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Bytes moved for a throughput figure. A link of 1 Gbit/s needs seconds for
// fewer.
const (
	bulk     = 512 << 20
	linkBulk = 256 << 20
)

// withCPU runs f and adds what the relays used meanwhile, divided by units.
func withCPU(p *path, name string, units float64, f func() (sample, error)) (sample, error) {
	before, err := sum(p.relays, (*process).cpu)
	if err != nil {
		return nil, err
	}
	out, err := f()
	if err != nil {
		return nil, err
	}
	after, err := sum(p.relays, (*process).cpu)
	if err != nil {
		return nil, err
	}
	if len(p.relays) > 0 {
		out[name] = (after - before).Seconds() / units
	}
	return out, nil
}

// throughput moves bytes one way, to the target or from it.
func throughput(mode byte, bytes int) func(context.Context, *path) (sample, error) {
	return func(ctx context.Context, p *path) (sample, error) {
		conn, err := p.dial(ctx)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return withCPU(p, "cpu s/GiB", float64(bytes)/(1<<30), func() (sample, error) {
			began := time.Now()
			if err := move(conn, mode, bytes); err != nil {
				return nil, err
			}
			return sample{"Gbit/s": float64(bytes) * 8 / time.Since(began).Seconds() / 1e9}, nil
		})
	}
}

func move(conn net.Conn, mode byte, bytes int) error {
	if _, err := conn.Write(header(mode, int64(bytes))); err != nil {
		return err
	}
	if mode == modeSource {
		n, err := io.CopyBuffer(onlyWriter{}, io.LimitReader(conn, int64(bytes)), make([]byte, 64<<10))
		if err == nil && n != int64(bytes) {
			err = fmt.Errorf("read %d bytes of %d", n, bytes)
		}
		return err
	}
	for sent := 0; sent < bytes; sent += 32 << 10 {
		if _, err := conn.Write(zeros[:32<<10]); err != nil {
			return err
		}
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

// dials are a dial, one byte there and back, and a close, one after the other.
func dials(ctx context.Context, p *path) (sample, error) {
	const n = 200
	var took []time.Duration
	return withCPU(p, "cpu ms/dial", n/1000.0, func() (sample, error) {
		for range n {
			began := time.Now()
			conn, err := p.dial(ctx)
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

func exchanges(ctx context.Context, p *path) (sample, error) {
	took, err := exchange(ctx, p, 5000, nil)
	if err != nil {
		return nil, err
	}
	return sample{"p50 µs": micros(percentile(took, 50)), "p99 µs": micros(percentile(took, 99))}, nil
}

// exchange sends 256 bytes and waits for them to come back, n times or until
// stop is closed.
func exchange(ctx context.Context, p *path, n int, stop <-chan struct{}) ([]time.Duration, error) {
	conn, err := p.dial(ctx)
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
func workers(ctx context.Context, p *path) (sample, error) {
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
				if err := oneShort(p, buf); err != nil {
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

func oneShort(p *path, buf []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := p.dial(ctx)
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

func percentile(ds []time.Duration, p int) time.Duration {
	slices.Sort(ds)
	return ds[min(len(ds)-1, len(ds)*p/100)]
}

func millis(d time.Duration) float64 { return float64(d) / 1e6 }
func micros(d time.Duration) float64 { return float64(d) / 1e3 }
