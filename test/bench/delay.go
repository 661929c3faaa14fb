package main

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// window is how many chunks of 64 KiB may be on their way: more than any
// bandwidth here times the longest round trip.
const window = 512

// byteTime is what a byte takes on a link of 1 Gbit/s. Without a limit the
// processor would be measured, and every hop more has less of it.
const byteTime = 8 * time.Nanosecond

type chunk struct {
	due  time.Time
	data []byte
}

// startDelay forwards TCP connections to an address and holds every byte for
// half a round trip, after its turn on the link. It works without root, and
// delays what protocols wait for; TCP's own windows end at it on either side.
func startDelay(to string, roundTrip time.Duration) (address string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			mu.Lock()
			open[near], open[far] = true, true
			mu.Unlock()
			go delay(far, near, roundTrip/2)
			go delay(near, far, roundTrip/2)
		}
	}()
	return listener.Addr().String(), func() {
		_ = listener.Close()
		mu.Lock()
		defer mu.Unlock()
		for conn := range open {
			_ = conn.Close()
		}
	}, nil
}

func delay(to, from net.Conn, by time.Duration) {
	queue := make(chan chunk, window)
	go func() {
		defer close(queue)
		var free time.Time // when the link is
		for {
			data := make([]byte, 64<<10)
			n, err := from.Read(data)
			if n > 0 {
				if now := time.Now(); free.Before(now) {
					free = now
				}
				free = free.Add(time.Duration(n) * byteTime)
				queue <- chunk{free.Add(by), data[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	broken := false
	for c := range queue {
		time.Sleep(time.Until(c.due))
		if _, err := to.Write(c.data); err != nil && !broken {
			broken = true // the rest is read and thrown away
			_ = from.Close()
		}
	}
	_ = to.(*net.TCPConn).CloseWrite()
}

// distantTLS is TLS to where the target is, over the delay.
func (w *world) distantTLS(at *place) (*path, error) {
	edge, edgeAddress, err := w.startEdge(at)
	if err != nil {
		return nil, err
	}
	address, stop, err := startDelay(edgeAddress, at.roundTrip)
	if err != nil {
		edge.stop()
		return nil, err
	}
	_, clientTLS, err := w.certs.configs()
	if err != nil {
		stop()
		edge.stop()
		return nil, err
	}
	dialer := &tls.Dialer{Config: clientTLS}
	return &path{
		dial:  func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", address) },
		close: func() { stop(); edge.stop() },
	}, nil
}
