package proxyserver

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// memListener gives connections of net.Pipe, so that time can be a test's own.
type memListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newMemListener() *memListener {
	return &memListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *memListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// partitioned is a connection whose packets vanish once cut is closed, without
// an error to anybody.
type partitioned struct {
	net.Conn
	cut chan struct{}
}

func (p *partitioned) Write(b []byte) (int, error) {
	select {
	case <-p.cut:
		return len(b), nil
	default:
		return p.Conn.Write(b)
	}
}

// TestPartitionedAgentLeavesRouting cuts an agent off without a RST: its control session
// is silent and TCP has nothing to say. It must be out of routing within 45 s,
// and not while it only has nothing to do.
func TestPartitionedAgentLeavesRouting(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, stop := newMemHub(t, dir).start("server-0")
		defer stop()
		cut := make(chan struct{})
		a := s.memControl("cluster1", cut)
		time.Sleep(10 * time.Minute)
		if !s.registry.knows("cluster1:443") {
			t.Fatal("a healthy agent left routing")
		}
		close(cut)
		began := time.Now()
		for s.registry.knows("cluster1:443") && time.Since(began) < time.Hour {
			time.Sleep(time.Second)
		}
		if gone := time.Since(began); gone > 45*time.Second {
			t.Errorf("a partitioned agent was routed to for %s, want 45s at most", gone)
		}
		<-a.gone
		// The server gives up in the same moment, and may be first.
		if code := carrier.CodeOf(a.err); code != carrier.TimedOut && code != carrier.CutOff {
			t.Errorf("the agent's session ended with %v, want that the server does not answer", a.err)
		}
	})
}
