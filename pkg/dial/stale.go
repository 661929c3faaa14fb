package dial

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// byNameTimeout bounds a dial by name if there is an address to fall back to: a DNS
// server that is gone is silent.
const byNameTimeout = 3 * time.Second

// StaleDialer is a net.Dialer that remembers. Its methods are safe for concurrent
// use; it must not be copied.
type StaleDialer struct {
	net.Dialer

	mu   sync.Mutex
	last map[string]string // the IP address and port, by what was asked for
}

// DialContext dials a TCP address, host:port. If DNS answers that the name does not
// exist, the dial fails. If both ways fail, the error is that of the dial by name.
func (d *StaleDialer) DialContext(ctx context.Context, address string) (net.Conn, error) {
	d.mu.Lock()
	last := d.last[address]
	d.mu.Unlock()
	first, cancel := ctx, func() {}
	if last != "" {
		first, cancel = context.WithTimeout(ctx, byNameTimeout)
	}
	conn, err := d.Dialer.DialContext(first, "tcp", address)
	cancel()
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.last == nil {
			d.last = map[string]string{}
		}
		d.last[address] = conn.RemoteAddr().String()
		return conn, nil
	}
	var unresolved *net.DNSError
	if last == "" || ctx.Err() != nil || !errors.As(err, &unresolved) || unresolved.IsNotFound {
		return nil, err
	}
	conn, lastErr := d.Dialer.DialContext(ctx, "tcp", last)
	if lastErr != nil {
		return nil, err
	}
	return conn, nil
}
