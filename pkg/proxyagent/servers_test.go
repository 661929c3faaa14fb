package proxyagent

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
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
)

func TestStreamEndsIfServerForgotAgent(t *testing.T) {
	s := newServers(context.Background(), nil, pool.Config{MinIdle: 1}, dial.FullJitter)
	ended := make(chan string, 3)
	for name, server := range map[string]string{"first": "forgot", "second": "forgot", "another server's": "knows"} {
		stream := &endStream{func() { ended <- name }}
		s.join(server, false, stream)
		defer s.leave(server, stream)
	}

	here, there := net.Pipe()
	defer there.Close()
	go func() { // the server: it takes HELLO, and knows of nobody
		c, _, err := carrier.Accepted(context.Background(), there, carrier.Config{Role: carrier.Opener})
		if err == nil {
			c.Abort(&carrier.Error{Code: carrier.NoAgent, Message: "no such session"})
		}
	}()
	dialed := false
	s.mu.Lock()
	carriers := s.newPool("forgot", nil, func(ctx context.Context) (*carrier.Carrier, error) {
		if dialed {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		dialed = true
		return carrier.Dialed(ctx, here, carrier.Hello{Session: "agent"}, carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(func(context.Context, *carrier.Pending) {})})
	})
	s.mu.Unlock()
	defer carriers.Close()
	got := map[string]bool{<-ended: true, <-ended: true}
	if !got["first"] || !got["second"] {
		t.Errorf("streams that ended: %v, want both to the server that forgot", got)
	}
}

// TestResetOfAConnectionEndsNoSession has a client end connections with every code there is. The
// server passes the code on, and only a carrier that has carried nothing yet says whether the server
// has forgotten the agent.
func TestResetOfAConnectionEndsNoSession(t *testing.T) {
	for code := carrier.NoSuchCluster; code <= carrier.Closed; code++ {
		synctest.Test(t, func(t *testing.T) {
			s := newServers(t.Context(), nil, pool.Config{MinIdle: 1}, func(int) time.Duration { return time.Second })
			ended := make(chan string, 1)
			stream := &endStream{func() { ended <- "control session" }}
			s.join("one", false, stream)
			opener := make(chan *carrier.Carrier, 1)
			accept := func(_ context.Context, p *carrier.Pending) {
				conn, err := p.Accept(carrier.Endpoints{})
				if err == nil {
					_, _ = io.Copy(io.Discard, conn)
				}
			}
			s.mu.Lock()
			carriers := s.newPool("one", nil, func(ctx context.Context) (*carrier.Carrier, error) {
				here, there := net.Pipe()
				go func() {
					c, _, err := carrier.Accepted(ctx, there, carrier.Config{Role: carrier.Opener})
					if err == nil {
						opener <- c
					}
				}()
				return carrier.Dialed(ctx, here, carrier.Hello{Session: "agent"}, carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(accept)})
			})
			s.mu.Unlock()
			server := <-opener
			conn, err := server.Open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "x:1"})
			if err != nil {
				t.Fatal(err)
			}
			conn.Abort(&carrier.Error{Code: code, Message: "a client says it"})
			synctest.Wait()
			select {
			case what := <-ended:
				t.Errorf("a client's RESET with code %d (%s) ended the agent's %s", code, code, what)
			default:
			}
			_ = carriers.Close()
			_ = server.Close()
			s.leave("one", stream)
			s.close()
			for len(opener) > 0 {
				_ = (<-opener).Close()
			}
			synctest.Wait()
		})
	}
}

// endStream is a stream of which only the end counts.
type endStream struct{ ended func() }

func (e *endStream) end()     { e.ended() }
func (*endStream) leave()     {}
func (*endStream) over() bool { return false }

// After dials that led to other servers only, those are spared until the server
// itself asks for carriers.
func TestCarriersThatLeadElsewhere(t *testing.T) {
	s := newServers(context.Background(), nil, pool.Config{}, dial.FullJitter)
	s.sessions["gone"] = &serverSession{elsewhere: time.Now().Add(time.Hour), pool: pool.New(pool.Config{})}
	defer s.sessions["gone"].pool.Close()
	if _, err := s.dial(t.Context(), "gone"); !errors.Is(err, errElsewhere) {
		t.Errorf("a dial ended with %v, want %v", err, errElsewhere)
	}
	s.more("gone", 1)
	if until := s.sessions["gone"].elsewhere; !until.IsZero() {
		t.Errorf("no carrier is dialed until %s though the server wants one", until)
	}
}

// TestRenewedCertificateIsShown has dials fail when the agent has a new certificate. The server
// ends what it has of the agent with the old one, and an idle agent dials nothing by itself.
func TestRenewedCertificateIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t.Context(), nil, pool.Config{MinIdle: 1}, dial.FullJitter)
		made := func() *carrier.Carrier {
			here, there := net.Pipe()
			go func() { _, _, _ = carrier.Accepted(context.Background(), there, carrier.Config{Role: carrier.Opener}) }()
			c, err := carrier.Dialed(t.Context(), here, carrier.Hello{Session: "agent"}, carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(func(context.Context, *carrier.Pending) {})})
			if err != nil {
				t.Error(err)
			}
			return c
		}
		var dials atomic.Int32
		known := &serverSession{dial: func(context.Context) (*carrier.Carrier, error) {
			if dials.Add(1) <= 3 {
				return nil, errElsewhere
			}
			return made(), nil
		}}
		s.sessions["a"] = known
		known.pool = s.newPool("a", made(), known.dial)
		synctest.Wait()
		s.renew()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := dials.Load(); n != 4 || known.pool.Stats().Idle != 2 {
			t.Errorf("%d dials, the first three of which have failed, show the new certificate; want 4", n)
		}
		s.close()
	})
}

// TestAgentsLeaveServersThatDrain wants an agent to tell a server that drains
// when it has another one, whichever comes first.
func TestAgentsLeaveServersThatDrain(t *testing.T) {
	for _, first := range []string{"the drain", "the other server"} {
		t.Run(first, func(t *testing.T) {
			s := newServers(context.Background(), nil, pool.Config{}, dial.FullJitter)
			left := make(leaveStream, 1)
			s.join("goes", false, left)
			if first == "the drain" {
				s.drains("goes", 60)
				if len(left) != 0 {
					t.Fatal("the agent leaves its only server")
				}
				s.join("stays", false, make(leaveStream, 1))
			} else {
				s.join("stays", false, make(leaveStream, 1))
				s.drains("goes", 60)
			}
			<-left
		})
	}
}

// leaveStream is a stream that gets a value when the agent leaves.
type leaveStream chan struct{}

func (leaveStream) end()       {}
func (leaveStream) over() bool { return false }
func (s leaveStream) leave() {
	select {
	case s <- struct{}{}:
	default:
	}
}
