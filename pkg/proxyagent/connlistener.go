package proxyagent

import (
	"net"
	"sync"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
)

// connListener is the listener by which the handler serves connections on carriers
// as they are. Over loopback each would be copied twice more, by two more goroutines.
type connListener struct{ *connect.Queue }

func newConnListener(address net.Addr) *connListener {
	return &connListener{connect.NewQueue(address)}
}

// serve hands the handler a connection that comes through proxy servers, and returns
// when that has ended.
func (h *connListener) serve(conn *carrier.Conn, through ...string) {
	handed := &handedConn{Conn: conn, through: through, ended: make(chan struct{})}
	if h.Hand(handed) {
		<-handed.ended
	} else {
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
