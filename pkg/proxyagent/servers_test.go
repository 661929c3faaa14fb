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

	"github.com/prometheus/client_golang/prometheus"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
)

// newTestServers makes servers whose dialer the test completes.
func newTestServers(ctx context.Context, backoff func(failures int) time.Duration) *servers {
	d := &carrierDialer{memory: memlimit.New(prometheus.NewRegistry(), "", ""), metrics: newAgentMetrics(prometheus.NewRegistry())}
	return newServers(ctx, d, pool.Config{}, backoff)
}

// addTestServer adds a server that serves, with these control sessions.
func addTestServer(s *servers, id string, sessions ...controlSession) *server {
	k := s.newServer(id)
	k.pool = pool.New(pool.Config{}) // which dials nothing, since it is not started
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addServerLocked(k, nil)
	k.sessions = sessions
	return k
}

// fakeSession is a control session of which only the end, and what is said, count.
type fakeSession struct {
	ended func()
	said  chan carrier.Control
}

func (f *fakeSession) Close() error {
	if f.ended != nil {
		f.ended()
	}
	return nil
}

func (f *fakeSession) Send(m carrier.Control) error {
	if f.said != nil {
		f.said <- m
	}
	return nil
}

func (*fakeSession) Over() bool { return false }

func TestSessionsEndIfServerForgotAgent(t *testing.T) {
	s := newTestServers(t.Context(), dial.FullJitter)
	s.config.MinIdle = 1
	ended := make(chan string, 3)
	session := func(name string) controlSession { return &fakeSession{ended: func() { ended <- name }} }
	another := addTestServer(s, "knows", session("another server's"))
	another.pool.Close()

	here, there := net.Pipe()
	defer there.Close()
	go func() { // the server: it takes HELLO, and knows of nobody
		c, _, err := carrier.Accepted(context.Background(), there, carrier.Config{Role: carrier.Opener})
		if err == nil {
			c.Abort(&carrier.Error{Code: carrier.NoAgent, Message: "no such session"})
		}
	}()
	dialed := false
	k := s.newServer("forgot")
	k.dial = func(ctx context.Context) (*carrier.Carrier, error) {
		if dialed {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		dialed = true
		return carrier.Dialed(ctx, here, carrier.Hello{Session: "agent"}, carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(func(context.Context, *carrier.Pending) {})})
	}
	s.mu.Lock()
	s.startPoolLocked(k, nil)
	s.addServerLocked(k, session("first"))
	k.sessions = append(k.sessions, session("second"))
	s.mu.Unlock()
	defer k.pool.Close()
	got := map[string]bool{<-ended: true, <-ended: true}
	if !got["first"] || !got["second"] {
		t.Errorf("sessions that ended: %v, want both with the server that forgot", got)
	}
}

// TestResetOfAConnectionEndsNoSession has a client end connections with every code there is. The
// server passes the code on, and only a carrier that has carried nothing yet says whether the server
// has forgotten the agent.
func TestResetOfAConnectionEndsNoSession(t *testing.T) {
	for code := carrier.NoSuchCluster; code <= carrier.Closed; code++ {
		synctest.Test(t, func(t *testing.T) {
			s := newTestServers(t.Context(), func(int) time.Duration { return time.Second })
			s.config.MinIdle = 1
			ended := make(chan string, 1)
			session := &fakeSession{ended: func() { ended <- "control session" }}
			opener := make(chan *carrier.Carrier, 1)
			accept := func(_ context.Context, p *carrier.Pending) {
				conn, err := p.Accept(carrier.Endpoints{})
				if err == nil {
					_, _ = io.Copy(io.Discard, conn)
				}
			}
			k := s.newServer("one")
			k.dial = func(ctx context.Context) (*carrier.Carrier, error) {
				here, there := net.Pipe()
				go func() {
					c, _, err := carrier.Accepted(context.WithoutCancel(ctx), there, carrier.Config{Role: carrier.Opener})
					if err == nil {
						opener <- c
					}
				}()
				return carrier.Dialed(ctx, here, carrier.Hello{Session: "agent"}, carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(accept)})
			}
			s.mu.Lock()
			s.startPoolLocked(k, nil)
			s.addServerLocked(k, session)
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
			_ = k.pool.Close()
			_ = server.Close()
			s.removeSession(k, session, false)
			s.close()
			for len(opener) > 0 {
				_ = (<-opener).Close()
			}
			synctest.Wait()
		})
	}
}

// After dials that led to other servers only, those are spared until the server
// itself asks for carriers.
func TestServersThatDialsDoNotReachAreSpared(t *testing.T) {
	s := newTestServers(t.Context(), dial.FullJitter)
	gone := addTestServer(s, "gone")
	defer gone.pool.Close()
	gone.retryAt = time.Now().Add(time.Hour)
	if _, err := gone.dial(t.Context()); !errors.Is(err, errOtherServers) {
		t.Errorf("a dial ended with %v, want %v", err, errOtherServers)
	}
	s.requestCarriers(gone, 1)
	if !gone.retryAt.IsZero() {
		t.Errorf("no carrier is dialed until %s though the server wants one", gone.retryAt)
	}
}

// TestRenewedCertificateIsShown has dials fail when the agent has a new certificate. The server
// ends what it has of the agent with the old one, and an idle agent dials nothing by itself.
func TestRenewedCertificateIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServers(t.Context(), dial.FullJitter)
		s.config.MinIdle = 1
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
		k := s.newServer("a")
		k.dial = func(context.Context) (*carrier.Carrier, error) {
			if dials.Add(1) <= 3 {
				return nil, errOtherServers
			}
			return made(), nil
		}
		s.mu.Lock()
		s.startPoolLocked(k, made())
		s.addServerLocked(k, &fakeSession{})
		s.mu.Unlock()
		synctest.Wait()
		s.presentCertificate()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := dials.Load(); n != 4 || k.pool.Stats().Idle != 2 {
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
			s := newTestServers(t.Context(), dial.FullJitter)
			said := make(chan carrier.Control, 10)
			goes := addTestServer(s, "goes", &fakeSession{said: said})
			if first == "the drain" {
				s.noteDraining(goes, 60)
				if len(said) != 0 {
					t.Fatal("the agent leaves its only server")
				}
				addTestServer(s, "stays")
			} else {
				addTestServer(s, "stays")
				s.noteDraining(goes, 60)
			}
			<-said
		})
	}
}

// TestCarriersOverASlowLink has a server ask for many carriers where each dial takes a second.
func TestCarriersOverASlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wanted = 40
		s := newTestServers(t.Context(), func(int) time.Duration { return time.Second })
		k := s.newServer("one")
		k.dial = func(ctx context.Context) (*carrier.Carrier, error) {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			here, there := net.Pipe()
			go func() {
				_, _, _ = carrier.Accepted(context.WithoutCancel(ctx), there, carrier.Config{Role: carrier.Opener})
			}()
			return carrier.Dialed(ctx, here, carrier.Hello{Session: "agent"}, carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(func(context.Context, *carrier.Pending) {})})
		}
		s.mu.Lock()
		s.startPoolLocked(k, nil)
		s.addServerLocked(k, &fakeSession{})
		s.mu.Unlock()
		defer k.pool.Close()
		s.requestCarriers(k, wanted)
		time.Sleep(3 * time.Second / 2)
		if n := k.pool.Stats().Idle; n < wanted {
			t.Errorf("the server has %d carriers, want the %d that it asked for", n, wanted)
		}
	})
}
