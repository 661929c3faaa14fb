package carrier

import (
	"net"
	"time"
)

// TCP says how a transport finds out that its peer is gone without a word.
// Zero values mean 30 s each.
type TCP struct {
	// KeepAlive is how long a transport is silent before it is probed.
	KeepAlive time.Duration
	// UserTimeout is how long sent bytes and probes may stay unacknowledged
	// (RFC 5482; Linux only, elsewhere the number of probes decides).
	UserTimeout time.Duration
}

const (
	defaultTCPTime = 30 * time.Second
	probeInterval  = 10 * time.Second
)

// Tune applies the settings. A transport that is not TCP is left alone, and so
// is one that is closed already: using it gives the error.
func (t TCP) Tune(nc net.Conn) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	if t.KeepAlive == 0 {
		t.KeepAlive = defaultTCPTime
	}
	if t.UserTimeout == 0 {
		t.UserTimeout = defaultTCPTime
	}
	probes := max(int(t.UserTimeout/probeInterval), 1)
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: t.KeepAlive, Interval: probeInterval, Count: probes})
	setUserTimeout(tcp, t.UserTimeout)
}
