package dial

import (
	"net"
	"time"
)

// TCP says how a connection detects a peer that is gone silently. Zero values mean 30 s
// each.
//
// A pausing reader may pause without limit, whatever is still in which buffer. Only a
// peer that acknowledges nothing of what it was sent is given up, after UserTimeout.
// TCP_USER_TIMEOUT cannot tell the two apart and stays off; a connection looks at the
// kernel's TCP_INFO instead, ten times in that time, while it has sent what is not
// acknowledged. An idle one has neither a goroutine nor a timer. Packets from the peer
// that acknowledge nothing new do not count, unless its window is shut and they answer
// a probe. Linux 6.15 and later probe often enough for a verdict in time; before, a
// peer that dies behind a window that was shut for minutes is found after four probes,
// which may be minutes apart.
//
// The kernel sends waiting bytes before everything that comes later, also before a
// small answer, since answers take turns above the kernel only. A connection therefore
// queues no more bytes than it sends in 100 ms, 16 KiB at least and 128 KiB at most
// (Linux), or, if it is fast, than it sends in 10 ms, 4 MiB at most; what is sent and not
// acknowledged does not count. On a fast link fewer would cost throughput, and on a
// slow one 128 KiB are seconds.
type TCP struct {
	// KeepAlive is how long a transport is silent before it is probed.
	KeepAlive time.Duration
	// UserTimeout is how long sent bytes may stay unacknowledged (Linux only), and
	// twice as long as it takes probes of a silent transport to find it dead. A peer
	// that acknowledges but accepts no more data may do so without limit.
	UserTimeout time.Duration
}

const (
	defaultTCPTime = 30 * time.Second
	// lostKeepAlives is how many probes without an answer mean that the peer of a
	// silent transport is gone.
	lostKeepAlives = 3
)

// Tune applies the settings, bounds what waits in the kernel to be sent (Linux
// only), and returns the transport to use in place of nc: nc itself does not look
// whether its peer is gone. Of TCP it has a CloseWrite. A transport that is not
// TCP is returned as it is, and so is one that is closed already: using it returns
// the error.
func (t TCP) Tune(nc net.Conn) net.Conn {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return nc
	}
	if t.KeepAlive == 0 {
		t.KeepAlive = defaultTCPTime
	}
	if t.UserTimeout == 0 {
		t.UserTimeout = defaultTCPTime
	}
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: t.KeepAlive, Interval: t.UserTimeout / (2 * lostKeepAlives), Count: lostKeepAlives})
	return withUserTimeout(tcp, t.UserTimeout)
}

// CloseWrite ends what this side sends on a connection. One that cannot end one direction alone
// is left to otherwise.
func CloseWrite(conn any, otherwise func() error) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return otherwise()
}

// TCPConnOf returns the TCP connection below the layers that have a NetConn method,
// TLS for example, or nil if there is none.
func TCPConnOf(nc net.Conn) *net.TCPConn {
	for {
		switch over := nc.(type) {
		case *net.TCPConn:
			return over
		case interface{ NetConn() net.Conn }:
			nc = over.NetConn()
		default:
			return nil
		}
	}
}
