package carrier

import (
	"errors"
	"net"
	"sync"
	"time"
)

// TCP says how a transport finds out that its peer is gone without a word.
// Zero values mean 30 s each.
type TCP struct {
	// KeepAlive is how long a transport is silent before it is probed.
	KeepAlive time.Duration
	// UserTimeout is how long sent bytes may stay unacknowledged (Linux only), and
	// twice as long as it takes probes of a silent transport to find it dead. A
	// peer that acknowledges and takes nothing more may do so for as long as it
	// likes, whatever is still in which buffer.
	UserTimeout time.Duration
}

const (
	defaultTCPTime = 30 * time.Second
	// lostKeepAlives is how many probes without an answer mean that the peer of a
	// silent transport is gone.
	lostKeepAlives = 3
)

// Tune applies the settings, bounds what waits in the kernel to be sent (Linux
// only), and gives the transport to use in place of nc. A
// transport that is not TCP is left alone, and so is one that is closed
// already: using it gives the error.
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

// tcpOf is the TCP connection that a transport is made on, or nil.
func tcpOf(nc net.Conn) *net.TCPConn {
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

// guardInterval is how often the transports of joined connections are looked
// at.
const guardInterval = 10 * time.Second

// guard ends connections whose transports have broken while nobody reads from
// them: what waits for a target that takes nothing more does not read, and
// would not hear of it until that ends. It looks until stop is called.
//
// It finds a reset, and a peer that is gone without a word. A peer that has
// only ended is not found, since what it sent last must still be delivered.
func guard(conns ...*Conn) (stop func()) {
	g := &guarded{}
	for _, cn := range conns {
		if tcp := tcpOf(cn.c.nc); tcp != nil {
			g.conns, g.tcp = append(g.conns, cn), append(g.tcp, tcp)
		}
	}
	if len(g.conns) == 0 {
		return func() {}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer = time.AfterFunc(guardInterval, g.look)
	return g.stop
}

type guarded struct {
	conns []*Conn
	tcp   []*net.TCPConn // of each

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

func (g *guarded) look() {
	for i, tcp := range g.tcp {
		if isBroken(tcp) {
			cn := g.conns[i]
			cn.c.failIf(func() bool { return cn.c.cur == cn }, cutOff(errTransportBroke), keepQuiet)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.stopped {
		g.timer.Reset(guardInterval)
	}
}

func (g *guarded) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
	g.timer.Stop()
}

var errTransportBroke = errors.New("the transport broke while nothing was read from it")
