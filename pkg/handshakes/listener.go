package handshakes

import (
	"errors"
	"net"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
)

// shortestPause and longestPause bound the time between two accepts that fail.
const (
	shortestPause = 5 * time.Millisecond
	longestPause  = time.Second
)

// Accept starts serve for each connection of a listener until that is closed.
func Accept(listener net.Listener, logger klog.Logger, serve func(net.Conn)) {
	var pause time.Duration
	for {
		conn, err := listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of file descriptors, most likely: other connections must end first.
			if pause == 0 {
				logger.Error(err, "Accepting no connections until that is over", "address", listener.Addr().String())
			}
			pause = min(max(2*pause, shortestPause), longestPause)
			time.Sleep(pause)
			continue
		}
		if pause > 0 {
			logger.Info("Accepting connections again", "address", listener.Addr().String())
			pause = 0
		}
		go serve(conn)
	}
}

// Listener returns the connections of another one when their handshake is complete.
// Accept returns a *tls.Conn.
type Listener struct {
	*connect.Queue
	inner net.Listener
	port  *Port
}

// NewListener starts to accept. The port is closed with the listener.
func NewListener(listener net.Listener, port *Port, logger klog.Logger) *Listener {
	l := &Listener{Queue: connect.NewQueue(listener.Addr()), inner: listener, port: port}
	go Accept(listener, logger, l.serve)
	return l
}

func (l *Listener) serve(raw net.Conn) {
	conn, err := l.port.Handshake(raw, nil)
	if err != nil {
		return // port scans, mostly, and connections that were cut
	}
	if !l.Hand(conn) {
		_ = conn.Close()
	}
}

// Close takes no new connections, and ends those whose handshake is not complete.
func (l *Listener) Close() error {
	err := l.inner.Close()
	_ = l.Queue.Close()
	l.port.Close()
	return err
}
