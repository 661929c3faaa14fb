package connect

import (
	"errors"
	"io"
	"net"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
)

// errCutOff is the reason of an Abort, for the other side of a carrier.
var errCutOff = errors.New("the other side of the connection was cut off")

// errNoHalfClose is a clean end that cannot be passed on alone.
var errNoHalfClose = errors.New("the connection has no half-close")

// Join copies both ways until both sides have ended. If one fails, both are aborted,
// and Join returns the error. If the receiver of a clean end has no half-close
// (HTTP/2), both directions end: this aborts the side that sent the end, unless the
// other direction has ended too. The caller closes a and b.
func Join(a, b io.ReadWriteCloser) error {
	type end struct {
		to, from io.ReadWriteCloser
		err      error
	}
	ends := make(chan end, 2)
	for _, way := range []end{{to: a, from: b}, {to: b, from: a}} {
		go func() {
			way.err = pass(way.to, way.from)
			ends <- way
		}()
	}
	first := <-ends
	if first.err == nil {
		second := <-ends
		if second.err == nil || errors.Is(second.err, errNoHalfClose) {
			return nil
		}
		Abort(a)
		Abort(b)
		return second.err
	}
	Abort(first.from)
	if errors.Is(first.err, errNoHalfClose) {
		_ = first.to.Close()
		first.err = nil
	} else {
		Abort(first.to)
	}
	<-ends
	return first.err
}

// pass copies one way, and passes a clean end on.
func pass(to, from io.ReadWriteCloser) error {
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	return dial.CloseWrite(to, func() error { return errNoHalfClose })
}

// Abort closes a connection so that what the other side reads ends with an
// error, and never with io.EOF: a carrier and a stream of HTTP/2 are reset. TLS
// ends without close_notify, by a reset of the TCP connection below.
func Abort(conn io.Closer) {
	for {
		switch over := conn.(type) {
		case interface{ Abort(error) }:
			over.Abort(errCutOff)
			return
		case interface{ NetConn() net.Conn }:
			conn = over.NetConn()
			continue
		case interface{ SetLinger(int) error }:
			_ = over.SetLinger(0)
		}
		_ = conn.Close()
		return
	}
}

// BelowTLS returns conn for use as a transport of TLS. Its end is an error:
// crypto/tls takes the end of its transport for an end that the peer announced
// with close_notify (RFC 8446, 6.1), and the kernel ends the TCP connections of a
// process that is killed.
func BelowTLS(conn net.Conn) net.Conn { return &belowTLS{conn} }

type belowTLS struct{ net.Conn }

func (c *belowTLS) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == io.EOF {
		// net/http knows errors of this type, and does not answer them.
		err = &net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: io.ErrUnexpectedEOF}
	}
	return n, err
}

// NetConn is what crypto/tls calls the connection below.
func (c *belowTLS) NetConn() net.Conn { return c.Conn }

// Listener makes connections of a listener for TLS BelowTLS.
type Listener struct{ net.Listener }

// Accept is part of net.Listener.
func (l Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return BelowTLS(conn), nil
}
