package proxyagent

import (
	"net"
	"sync"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// handover is the listener by which the handler gets connections from carriers
// as they are. Over loopback each would be copied twice more, by two more
// goroutines.
type handover struct {
	address net.Addr
	conns   chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

func newHandover(address net.Addr) *handover {
	return &handover{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept is part of net.Listener.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Addr is that of the handler's other listener.
func (h *handover) Addr() net.Addr { return h.address }

// Close is part of net.Listener.
func (h *handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// serve gives the handler a connection that comes through proxy servers, and
// returns when that has ended.
func (h *handover) serve(conn *carrier.Conn, through ...string) {
	handed := &handedConn{Conn: conn, through: through, ended: make(chan struct{})}
	select {
	case h.conns <- handed:
		<-handed.ended
	case <-h.closed:
		_ = conn.Close() // the agent ends
	}
}

// handedConn says when the handler is done with it.
type handedConn struct {
	*carrier.Conn
	through []string // server IDs
	once    sync.Once
	ended   chan struct{}
}

func (c *handedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.ended) })
	return err
}

// Abort ends the connection as one that was cut off.
func (c *handedConn) Abort(reason error) {
	c.Conn.Abort(reason)
	_ = c.Close()
}
