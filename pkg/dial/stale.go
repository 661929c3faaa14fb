package dial

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// staleAfter is when an address of the past is dialed beside a dial by name that has not
// ended: a DNS server that is gone is silent. A slow one answers later.
const staleAfter = 3 * time.Second

// StaleDialer is a net.Dialer that remembers. Its methods are safe for concurrent
// use; it must not be copied.
type StaleDialer struct {
	net.Dialer

	mu   sync.Mutex
	last map[string]string // the IP address and port, by what was asked for
}

// DialContext dials a TCP address, host:port. If DNS does not answer, the address that the
// name had last is dialed as well, and the first connection counts. If DNS answers that the
// name does not exist, the dial fails. If both ways fail, the error is that of the dial by name.
func (d *StaleDialer) DialContext(ctx context.Context, address string) (net.Conn, error) {
	d.mu.Lock()
	last := d.last[address]
	d.mu.Unlock()
	if last == "" {
		return d.dialName(ctx, address)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	byName, stale := make(chan dialed, 1), make(chan dialed, 1)
	go func() {
		conn, err := d.dialName(ctx, address)
		byName <- dialed{conn, err}
	}()
	late := time.NewTimer(staleAfter)
	defer late.Stop()
	var of dialed
	select {
	case of = <-byName:
		if of.err == nil || ctx.Err() != nil || !unanswered(of.err) {
			return of.conn, of.err
		}
		byName = nil
	case <-late.C:
	}
	go func() {
		conn, err := d.Dialer.DialContext(ctx, "tcp", last)
		stale <- dialed{conn, err}
	}()
	for byName != nil || stale != nil {
		select {
		case of = <-byName:
			if byName = nil; of.err == nil || !unanswered(of.err) {
				go closeLate(stale)
				return of.conn, of.err
			}
		case old := <-stale:
			if stale = nil; old.err == nil {
				go closeLate(byName)
				return old.conn, nil
			}
		}
	}
	return nil, of.err
}

// dialName dials by name, and remembers the address.
func (d *StaleDialer) dialName(ctx context.Context, address string) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil {
		d.last = map[string]string{}
	}
	d.last[address] = conn.RemoteAddr().String()
	return conn, nil
}

// dialed is how a dial has ended.
type dialed struct {
	conn net.Conn
	err  error
}

// closeLate closes what the slower way has connected to; way is nil if that has ended.
func closeLate(way <-chan dialed) {
	if way == nil {
		return
	}
	if late := <-way; late.err == nil {
		_ = late.conn.Close()
	}
}

// unanswered reports whether a dial has failed because DNS did not answer.
func unanswered(err error) bool {
	var unresolved *net.DNSError
	return errors.As(err, &unresolved) && !unresolved.IsNotFound
}
