// Package clienthello sends what a TLS client says first and nothing after it, as
// a flood does that costs its sender little.
package clienthello

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

const (
	perSecond = 2000
	perTick   = 20
	// maxOpen is how many connections a flood keeps open.
	maxOpen = 1000
	// dialTimeout is long, since the port is busy.
	dialTimeout = 20 * time.Second
)

// First returns the ClientHello of a client with config.
func First(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() { _ = tls.Client(near, config).Handshake() }()
	hello := make([]byte, 16<<10)
	n, err := far.Read(hello)
	if err != nil {
		t.Fatal(err)
	}
	return hello[:n]
}

// Flood sends 2,000 copies of hello a second to address, each on a connection of
// its own and all from 127.9.9.9, until ctx is done. It keeps the last 1,000
// connections open, and counts the copies in sent.
func Flood(ctx context.Context, address string, hello []byte, sent *atomic.Int64) {
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			_ = conn.Close()
		}
	}()
	dialer := &net.Dialer{Timeout: dialTimeout, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 9, 9, 9)}}
	tick := time.NewTicker(perTick * time.Second / perSecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for range perTick {
			conn, err := dialer.Dial("tcp", address)
			if err != nil {
				continue
			}
			_, _ = conn.Write(hello)
			sent.Add(1)
			if open = append(open, conn); len(open) > maxOpen {
				_ = open[0].Close()
				open = slices.Delete(open, 0, 1)
			}
		}
	}
}
