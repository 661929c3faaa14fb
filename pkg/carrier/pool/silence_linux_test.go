package pool

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/test/testkit/carriertest"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

var eventually = wait.Poll{Every: time.Millisecond, For: 20 * time.Second}.Until

// TestPathOfOneCarrierIsGone drops the packets of one carrier to a server that is well, as a NAT
// does that has forgotten the connection: the dial takes another carrier.
func TestPathOfOneCarrierIsGone(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	far := map[string]net.Conn{}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			far[conn.RemoteAddr().String()] = conn
			mu.Unlock()
			serving.Go(func() {
				c, _, err := carrier.Accepted(context.Background(), conn, carrier.Config{Role: carrier.Acceptor, Name: "a", Handler: carrier.HandlerFunc(acceptAll)})
				if err == nil {
					<-t.Context().Done()
					_ = c.Close()
				}
			})
		}
	})
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	p := New(Config{Dial: func(ctx context.Context) (*carrier.Carrier, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
		if err != nil {
			return nil, err
		}
		return carrier.Dialed(ctx, conn, carrier.Hello{}, carrier.Config{})
	}})
	defer p.Close()
	p.Start()
	eventually(t, "two carriers are idle", func() bool { return p.Stats().Idle == 2 })
	p.mu.Lock()
	next := p.idle[1].c
	p.mu.Unlock()
	mu.Lock()
	carriertest.Swallow(t, far[next.Transport().LocalAddr().String()])
	mu.Unlock()
	conn, err := p.Open(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if conn.Carrier() == next {
		t.Error("the connection is on the carrier whose packets vanish")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peers["a"].alive.IsSuspect() {
		t.Error("the server, which answers on other carriers, is a suspect")
	}
}
