package pool

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/carriertest"
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
	mu     sync.Mutex
	silent bool
	conns  []*carriertest.Mutable
	opens  int
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
	m := &carriertest.Mutable{Conn: a}
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
	return carrier.Dialed(ctx, m, carrier.Hello{Features: []string{carrier.FeatureName}}, carrier.Config{})
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

func TestHedgePassesSilentServersOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fakeServer{name: "a", serve: acceptAll}, &fakeServer{name: "b", serve: acceptAll}
		servers := &balanced{servers: []*fakeServer{a, b}}
		pool := New(Config{Dial: servers.dial, Hedge: true, FailAlone: true})
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
		gone, other := a, "b"
		{
			gone.goSilent()
			slow := 0
			for i := range 20 {
				peer, took := open()
				if peer != other || took > 3*time.Second {
					t.Errorf("dial %d was served by %q after %s, want %q within 3 s", i, peer, took, other)
				}
				if took > stuckAfter {
					slow++
				}
			}
			if slow > 1 {
				t.Errorf("%d dials waited for the silent server, want one", slow)
			}
			gone.mu.Lock()
			gone.silent = false
			gone.mu.Unlock()
		}
		before := a.asked()
		for range 20 {
			open()
		}
		if a.asked() == before {
			t.Error("the server that is well again was not asked")
		}
	})
}

// TestHedgeLeavesSlowTargetsAlone has a target that takes long, behind servers
// that are well. One dial is enough, or two where there is no second carrier to
// find out by.
func TestHedgeLeavesSlowTargetsAlone(t *testing.T) {
	for servers, most := range map[int]int{1: 1, 2: 2} {
		synctest.Test(t, func(t *testing.T) {
			slow := func(ctx context.Context, p *carrier.Pending) {
				select {
				case <-time.After(10 * time.Second):
					_, _ = p.Accept(carrier.Endpoints{})
				case <-ctx.Done():
				}
			}
			a, b := &fakeServer{name: "a", serve: slow}, &fakeServer{name: "b", serve: slow}
			address := &balanced{servers: []*fakeServer{a, b}[:servers]}
			pool := New(Config{Dial: address.dial, Hedge: true})
			defer pool.Close()
			pool.Start()
			synctest.Wait()
			if _, err := pool.Open(t.Context(), request); err != nil {
				t.Error(err)
			}
			if n := a.asked() + b.asked(); n > most {
				t.Errorf("%d dials to a slow target behind %d servers, want at most %d", n, servers, most)
			}
		})
	}
}

// TestHedgeTellsRefusals has a refusal, which counts, end a dial at once.
func TestHedgeTellsRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeServer{name: "a", serve: func(_ context.Context, p *carrier.Pending) { _ = p.Refuse(&carrier.Error{Code: carrier.Denied}) }}
		servers := &balanced{servers: []*fakeServer{a}}
		pool := New(Config{Dial: servers.dial, Hedge: true})
		defer pool.Close()
		if _, err := pool.Open(t.Context(), request); carrier.CodeOf(err) != carrier.Denied || a.asked() != 1 {
			t.Errorf("error %v after %d dials, want %s after one", err, a.asked(), carrier.Denied)
		}
	})
}
