package pool

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/test/testkit/transport"
)

// slowToReturn is a transport whose writes arrive, and return when the gate opens.
type slowToReturn struct {
	net.Conn
	gate atomic.Pointer[chan struct{}]
}

func (s *slowToReturn) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	if gate := s.gate.Load(); gate != nil {
		<-*gate
	}
	return n, err
}

func (s *slowToReturn) hold() (release func()) {
	gate := make(chan struct{})
	s.gate.Store(&gate)
	return func() {
		s.gate.Store(nil)
		close(gate)
	}
}

// TestPoolKnowsWhichCarriersAreBusy lets the next OPEN overtake the report that
// the carrier is idle.
func TestPoolKnowsWhichCarriersAreBusy(t *testing.T) {
	for name, end := range map[string]func(p *carrier.Pending, cn chan<- *carrier.Conn){
		"after REFUSE": func(p *carrier.Pending, _ chan<- *carrier.Conn) { _ = p.Refuse(&carrier.Error{Code: carrier.Denied}) },
		"after FIN": func(p *carrier.Pending, cns chan<- *carrier.Conn) {
			cn, err := p.Accept(carrier.Endpoints{})
			if err != nil {
				t.Error(err)
				return
			}
			cns <- cn
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, y := net.Pipe()
				slow, cns := &slowToReturn{Conn: y}, make(chan *carrier.Conn, 1)
				served := 0
				hold := make(chan struct{})
				opener, acceptor := endsOver(t, x, slow, func(_ context.Context, p *carrier.Pending) {
					if served++; served == 1 {
						end(p, cns)
						return
					}
					<-hold // busy
				})
				pool := New(Config{MinIdle: 1})
				if err := pool.Add(acceptor); err != nil {
					t.Fatal(err)
				}
				var release func()
				if name == "after REFUSE" {
					release = slow.hold()
					_, _ = opener.Open(t.Context(), request)
				} else {
					a, err := opener.Open(t.Context(), request)
					if err != nil {
						t.Fatal(err)
					}
					_ = a.CloseWrite()
					b := <-cns
					_, _ = io.ReadAll(b)
					release = slow.hold()
					go func() { _ = b.CloseWrite() }()
					_, _ = io.ReadAll(a)
				}
				ctx, cancel := context.WithCancel(t.Context())
				go func() { _, _ = opener.Open(ctx, request) }()
				synctest.Wait() // it is served, while the end of the last one is not reported yet
				if s := pool.Stats(); served != 2 || s.InUse != 1 {
					t.Errorf("%d were served, %+v; want the second one on a carrier in use", served, s)
				}
				release()
				synctest.Wait()
				if s := pool.Stats(); s.InUse != 1 || s.Idle != 0 {
					t.Errorf("after the late report %+v, want one in use", s)
				}
				cancel()
				close(hold)
				synctest.Wait()
				_ = pool.Close()
			})
		})
	}
	t.Run("before Add", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cns := newChan()
			opener, acceptor := ends(t, transport.Pipe, accepting(cns))
			if _, err := opener.Open(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			pool := New(Config{MinIdle: 1})
			_ = pool.Add(acceptor)
			if s := pool.Stats(); s.InUse != 1 || s.Idle != 0 {
				t.Errorf("%+v, want one in use", s)
			}
			_ = pool.Close()
		})
	})
}

// TestWaitingOpenShortensPause wants a long pause to end as soon as an Open waits.
func TestWaitingOpenShortensPause(t *testing.T) {
	for name, come := range map[string]func(*Pool){
		"a user":   func(p *Pool) { go func() { _, _ = p.Open(context.Background(), request) }() },
		"the peer": func(p *Pool) { p.Request(1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dials := 0
				p := New(Config{
					MinIdle: 1,
					Dial:    func(context.Context) (*carrier.Carrier, error) { dials++; return nil, errors.New("no route") },
					Backoff: func(failures int) time.Duration { return time.Duration(failures*failures) * time.Second },
				})
				p.Start()
				time.Sleep(200 * time.Second)
				synctest.Wait()
				before := dials
				come(p)
				time.Sleep(time.Second)
				synctest.Wait()
				if dials != before+1 {
					t.Errorf("%d dials within a second after %s came, want one", dials-before, name)
				}
				_ = p.Close()
			})
		})
	}
}
