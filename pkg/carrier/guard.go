package carrier

import (
	"errors"
	"net"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
)

// guardInterval is how often the transports of joined connections are looked
// at.
const guardInterval = 10 * time.Second

// guard ends connections whose transports have broken while nothing reads from them: a
// connection that waits for a target which accepts no more data does not read, and
// would not notice until the target ends. It runs until stop is called.
//
// It detects a reset, and a peer that is gone silently. It does not detect a peer that
// ended cleanly, since what it sent last must still be delivered.
func guard(conns ...*Conn) (stop func()) {
	g := &guarded{}
	for _, cn := range conns {
		if tcp := dial.TCPConnOf(cn.c.nc); tcp != nil {
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
		if dial.IsBroken(tcp) {
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
