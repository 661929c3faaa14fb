package connect

import (
	"net"
	"sync"
)

// Queue is a net.Listener within the process, for connections that were accepted
// elsewhere.
type Queue struct {
	address net.Addr
	conns   chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

// NewQueue makes a Queue whose Addr is address.
func NewQueue(address net.Addr) *Queue {
	return &Queue{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Hand waits until Accept has taken conn. It reports false if the Queue was closed
// before that; then conn is still the caller's.
func (q *Queue) Hand(conn net.Conn) bool {
	select {
	case q.conns <- conn:
		return true
	case <-q.closed:
		return false
	}
}

// Accept is part of net.Listener.
func (q *Queue) Accept() (net.Conn, error) {
	select {
	case conn := <-q.conns:
		return conn, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Addr is part of net.Listener.
func (q *Queue) Addr() net.Addr { return q.address }

// Close is part of net.Listener. It may be called more than once.
func (q *Queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}
