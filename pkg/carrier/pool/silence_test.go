package pool

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/test/testkit/carriertest"
)

// balanced is proxy servers behind one address, which lead to them in turn.
type balanced struct {
	mu      sync.Mutex
	next    int
	servers []*fakeServer
}

type fakeServer struct {
	name   string
	serve  func(ctx context.Context, p *carrier.Pending)
	delay  time.Duration // until something that it says arrives
	mu     sync.Mutex
	silent bool
	busy   time.Time // until then nothing that it says arrives
	conns  []*carriertest.Mutable
	opens  int
	dialed int
}

func (s *fakeServer) goSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = true
	for _, m := range s.conns {
		m.Mute()
	}
	s.conns = nil
}

func (s *fakeServer) dial(ctx context.Context) (*carrier.Carrier, error) {
	s.mu.Lock()
	if s.silent {
		s.mu.Unlock()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	a, b := net.Pipe()
	s.dialed++
	m := &carriertest.Mutable{Conn: slowConn{a, s}}
	s.conns = append(s.conns, m)
	s.mu.Unlock()
	go func() {
		_, _, _ = carrier.Accepted(context.Background(), b, carrier.Config{Role: carrier.Acceptor, Name: s.name, Handler: carrier.HandlerFunc(func(ctx context.Context, p *carrier.Pending) {
			s.mu.Lock()
			s.opens++
			s.mu.Unlock()
			s.serve(ctx, p)
		})})
	}()
	return carrier.Dialed(ctx, m, carrier.Hello{}, carrier.Config{})
}

func (s *fakeServer) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opens
}

func (b *balanced) dial(ctx context.Context) (*carrier.Carrier, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	b.mu.Lock()
	s := b.servers[b.next%len(b.servers)]
	b.next++
	b.mu.Unlock()
	return s.dial(ctx)
}

func acceptAll(_ context.Context, p *carrier.Pending) { _, _ = p.Accept(carrier.Endpoints{}) }

func TestSilentServersArePassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fakeServer{name: "a", serve: acceptAll}, &fakeServer{name: "b", serve: acceptAll}
		servers := &balanced{servers: []*fakeServer{a, b}}
		pool := New(Config{Dial: servers.dial})
		defer pool.Close()
		pool.Start()
		synctest.Wait()
		open := func() (peer string, took time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			began := time.Now()
			cn, err := pool.Open(ctx, request)
			if err != nil {
				t.Fatal(err)
			}
			return cn.Carrier().PeerName(), time.Since(began)
		}
		for range 6 { // both are known, and have carriers in use
			if _, took := open(); took != 0 {
				t.Errorf("a dial took %s with all servers well", took)
			}
		}
		a.goSilent()
		slow := 0
		for i := range 20 {
			peer, took := open()
			if peer != "b" || took > 3*time.Second {
				t.Errorf("dial %d was served by %q after %s, want %q within 3 s", i, peer, took, "b")
			}
			if took > slowAfter {
				slow++
			}
		}
		if slow > 1 {
			t.Errorf("%d dials waited for the silent server, want one", slow)
		}
		a.mu.Lock()
		a.silent = false
		a.mu.Unlock()
		before := a.asked()
		for range 20 {
			open()
		}
		if a.asked() == before {
			t.Error("the server that is well again was not asked")
		}
	})
}

// TestSlowTargetIsDialedOnce has a target that takes long, behind servers
// that are well.
func TestSlowTargetIsDialedOnce(t *testing.T) {
	for servers := range 3 {
		synctest.Test(t, func(t *testing.T) {
			slow := func(ctx context.Context, p *carrier.Pending) {
				select {
				case <-time.After(10 * time.Second):
					_, _ = p.Accept(carrier.Endpoints{})
				case <-ctx.Done():
				}
			}
			a, b, c := &fakeServer{name: "a", serve: slow}, &fakeServer{name: "b", serve: slow}, &fakeServer{name: "c", serve: slow}
			address := &balanced{servers: []*fakeServer{a, b, c}[:servers+1]}
			pool := New(Config{Dial: address.dial})
			defer pool.Close()
			pool.Start()
			synctest.Wait()
			if _, err := pool.Open(t.Context(), request); err != nil {
				t.Error(err)
			}
			if n := a.asked() + b.asked() + c.asked(); n != 1 {
				t.Errorf("%d dials to a slow target behind %d servers, want one", n, servers+1)
			}
		})
	}
}

// TestSlowTargetIsDialedOnceThoughDialsLeadElsewhere has a target that takes long, behind a server
// to which no other carrier leads, nor do the first dials by which the pool asks for it.
func TestSlowTargetIsDialedOnceThoughDialsLeadElsewhere(t *testing.T) {
	for astray := pingDials; astray <= 3*pingDials; astray += pingDials {
		synctest.Test(t, func(t *testing.T) {
			slow := func(ctx context.Context, p *carrier.Pending) {
				select {
				case <-time.After(10 * time.Second):
					_, _ = p.Accept(carrier.Endpoints{})
				case <-ctx.Done():
				}
			}
			a, b := &fakeServer{name: "a", serve: slow}, &fakeServer{name: "b", serve: slow}
			var dials atomic.Int32
			pool := New(Config{MinIdle: 1, Dial: func(ctx context.Context) (*carrier.Carrier, error) {
				if n := int(dials.Add(1)); n > 1 && n <= 2+astray { // of which the first one keeps the pool filled
					return b.dial(ctx)
				}
				return a.dial(ctx)
			}})
			defer pool.Close()
			pool.Start()
			synctest.Wait()
			if _, err := pool.Open(t.Context(), request); err != nil {
				t.Error(err)
			}
			if n := a.asked() + b.asked(); n != 1 {
				t.Errorf("%d dials to a slow target, when %d dials lead to another server, want one", n, astray)
			}
		})
	}
}

// TestSlowTargetsAreDialedOnce dials a cluster that takes 1.5 to 6 s to answer, for 16 users at a
// time, through servers that are well: a second dial would double the load of the cluster.
func TestSlowTargetsAreDialedOnce(t *testing.T) {
	const users, each = 16, 12
	for _, servers := range []int{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			slow := func(ctx context.Context, p *carrier.Pending) {
				select {
				case <-time.After(p.Timeout / 10):
					if conn, err := p.Accept(carrier.Endpoints{}); err == nil {
						_ = conn.Close()
					}
				case <-ctx.Done():
				}
			}
			address := &balanced{}
			for _, name := range []string{"a", "b", "c"}[:servers] {
				address.servers = append(address.servers, &fakeServer{name: name, serve: slow})
			}
			pool := New(Config{Dial: address.dial})
			defer pool.Close()
			var dials sync.WaitGroup
			for user := range users {
				dials.Go(func() {
					for i := range each {
						latency := 1500*time.Millisecond + time.Duration((user*7+i*5)%10)*500*time.Millisecond
						conn, err := pool.Open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "slow:443", Timeout: 10 * latency})
						if err != nil {
							t.Error(err)
							continue
						}
						_ = conn.Close()
					}
				})
			}
			dials.Wait()
			asked := 0
			for _, s := range address.servers {
				asked += s.asked()
			}
			if asked != users*each {
				t.Errorf("%d servers: the cluster was asked %d times for %d connections", servers, asked, users*each)
			}
		})
	}
}

// TestRefusalCounts has a refusal, which counts, end a dial at once.
func TestRefusalCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeServer{name: "a", serve: func(_ context.Context, p *carrier.Pending) { _ = p.Refuse(&carrier.Error{Code: carrier.Denied}) }}
		servers := &balanced{servers: []*fakeServer{a}}
		pool := New(Config{Dial: servers.dial})
		defer pool.Close()
		if _, err := pool.Open(t.Context(), request); carrier.CodeOf(err) != carrier.Denied || a.asked() != 1 {
			t.Errorf("error %v after %d dials, want %s after one", err, a.asked(), carrier.Denied)
		}
	})
}

// slowConn is a connection from which everything comes late.
type slowConn struct {
	net.Conn
	from *fakeServer
}

func (c slowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.from.mu.Lock()
	late := max(c.from.delay, time.Until(c.from.busy))
	c.from.mu.Unlock()
	time.Sleep(late)
	return n, err
}

// TestStallCostsNoCarriers has a server say nothing for longer than one that counts as silent. The
// idle carriers to it are used again when it answers: handshakes would be more work for a server
// that is short of processors.
func TestStallCostsNoCarriers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accepted := make(chan *carrier.Conn, 100)
		a, b := &fakeServer{name: "a", serve: accepting(accepted)}, &fakeServer{name: "b", serve: accepting(accepted)}
		servers := &balanced{servers: []*fakeServer{a, b}}
		pool := New(Config{Dial: servers.dial, IdleTime: time.Hour})
		defer pool.Close()
		open := func() []*carrier.Conn {
			var conns []*carrier.Conn
			for range 20 {
				cn, err := pool.Open(t.Context(), request)
				if err != nil {
					t.Fatal(err)
				}
				conns = append(conns, cn)
			}
			return conns
		}
		for _, cn := range open() {
			_ = cn.Close()
			_ = (<-accepted).Close()
		}
		time.Sleep(time.Minute)
		a.mu.Lock()
		dialed := a.dialed
		a.busy = time.Now().Add(4 * time.Second)
		a.mu.Unlock()
		if cn, err := pool.Open(t.Context(), request); err != nil || cn.Carrier().PeerName() != "b" {
			t.Fatalf("a dial while a server stalls: %v, want one by the other server", err)
		}
		time.Sleep(time.Minute)
		before := a.asked()
		open()
		a.mu.Lock()
		dialed = a.dialed - dialed
		a.mu.Unlock()
		if dialed > 1 || a.asked() < before+8 {
			t.Errorf("%d carriers were dialed to a server that stalled, and it was asked for %d of 20 connections; want one at most, and half of them", dialed, a.asked()-before)
		}
	})
}

// TestStallCostsNoWaiterItsCarrier has three users wait while the only server says nothing, and takes
// no new connections, as one does that a Service leaves out. When it answers again, each of them gets
// an idle carrier to it.
func TestStallCostsNoWaiterItsCarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeServer{name: "a", serve: acceptAll}
		var left atomic.Bool
		pool := New(Config{MinIdle: 8, Dial: func(ctx context.Context) (*carrier.Carrier, error) {
			if left.Load() {
				return nil, errors.New("connection refused")
			}
			return a.dial(ctx)
		}})
		defer pool.Close()
		pool.Start()
		time.Sleep(time.Minute)
		left.Store(true)
		a.mu.Lock()
		a.busy = time.Now().Add(4 * time.Second)
		a.mu.Unlock()
		var users sync.WaitGroup
		for range 3 {
			users.Go(func() {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				if _, err := pool.Open(ctx, request); err != nil {
					t.Errorf("a dial failed after %s: %v", time.Since(began), err)
				}
			})
		}
		users.Wait()
	})
}

// TestNobodyWaitsForPings has a user go who waited for a server to which no more dials lead, as one
// that drains, while another connection to it goes on.
func TestNobodyWaitsForPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		a := &fakeServer{name: "a", serve: func(ctx context.Context, p *carrier.Pending) {
			if asked.Add(1) == 1 {
				_, _ = p.Accept(carrier.Endpoints{})
				return
			}
			<-ctx.Done()
		}}
		b := &fakeServer{name: "b", serve: acceptAll}
		var dials atomic.Int32
		pool := New(Config{MinIdle: 1, Dial: func(ctx context.Context) (*carrier.Carrier, error) {
			if dials.Add(1) <= 2 {
				return a.dial(ctx)
			}
			return b.dial(ctx)
		}})
		defer pool.Close()
		pool.Start()
		synctest.Wait()
		if _, err := pool.Open(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second/2)
		defer cancel()
		if _, err := pool.Open(ctx, request); carrier.CodeOf(err) != carrier.TimedOut {
			t.Fatalf("a dial to a target that does not answer: %v, want %v", err, carrier.TimedOut)
		}
		before := dials.Load()
		time.Sleep(time.Minute)
		if n := dials.Load() - before; n > 2*pingDials {
			t.Errorf("%d dials in the minute after the last user has gone, want none for pings", n)
		}
	})
}

// TestSlowServerIsWaitedFor has a server that needs longer to answer a ping than a dead one is
// given: it is asked a second time, and then waited for.
func TestSlowServerIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeServer{name: "a", serve: acceptAll, delay: 4 * time.Second}
		pool := New(Config{Dial: a.dial})
		pool.Start()
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		if _, err := pool.Open(ctx, request); err != nil {
			t.Errorf("a dial by a slow server: %v", err)
		}
		_ = pool.Close()
		time.Sleep(time.Minute) // its readers are late for that too
	})
}

// TestSlowTargetWithoutCarriersLeft has a target that takes long, and all carriers that there may be
// in use: none is left to ask the server whether it is alive.
func TestSlowTargetWithoutCarriersLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeServer{name: "a", serve: func(ctx context.Context, p *carrier.Pending) {
			select {
			case <-time.After(10 * time.Second):
				_, _ = p.Accept(carrier.Endpoints{})
			case <-ctx.Done():
			}
		}}
		pool := New(Config{Dial: a.dial, Max: 1})
		defer pool.Close()
		if _, err := pool.Open(t.Context(), request); err != nil || a.asked() != 1 {
			t.Errorf("error %v after %d dials, want none after one", err, a.asked())
		}
	})
}
