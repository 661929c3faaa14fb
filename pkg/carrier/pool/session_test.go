package pool

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/test/testkit/transport"
)

// sessionOverPipe makes a control session on which the near end may open connections.
func sessionOverPipe(t *testing.T, accepted chan *carrier.Conn) (near, far *carrier.Session) {
	t.Helper()
	a, b := net.Pipe()
	made := make(chan *carrier.Session, 1)
	go func() {
		session, err := carrier.DialSession(t.Context(), b, carrier.Hello{Session: "agent"}, carrier.SessionConfig{Carrier: &carrier.Config{Role: carrier.Acceptor, Handler: accepting(accepted)}})
		if err != nil {
			t.Errorf("dialing a session: %v", err)
		}
		made <- session
	}()
	hello, err := carrier.ReadHello(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	near = carrier.AcceptSession(a, hello, carrier.SessionConfig{PingAfter: 24 * time.Hour, Carrier: &carrier.Config{}})
	if err := near.Answer(t.Context(), carrier.Hello{}); err != nil {
		t.Fatal(err)
	}
	far = <-made
	for _, session := range []*carrier.Session{near, far} {
		session.Start(func(carrier.Control) {}, func(error) {})
	}
	return near, far
}

// TestSessionsAreTakenLast has a pool of a control session and other carriers: it counts as one
// that is idle, is used when there is no other one, and is not closed as surplus.
func TestSessionsAreTakenLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accepted := make(chan *carrier.Conn, 9)
		p := New(Config{MinIdle: 1})
		defer p.Close()
		session, _ := sessionOverPipe(t, accepted)
		add := func() *carrier.Carrier {
			c, _ := ends(t, transport.Pipe, accepting(accepted))
			if err := p.Add(c); err != nil {
				t.Fatal(err)
			}
			return c
		}
		idle := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			if got := p.Stats().Idle; got != want {
				t.Errorf("%s, %d carriers are idle, want %d", when, got, want)
			}
		}
		one := add()
		if err := p.Add(session.Carrier()); err != nil {
			t.Fatal(err)
		}
		two := add()
		idle("at first", 3)
		var conns []*carrier.Conn
		for _, want := range []*carrier.Carrier{two, one, session.Carrier()} {
			conn, err := p.Open(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			if conn.Carrier() != want {
				t.Error("the carriers are used in the wrong order")
			}
			if want != session.Carrier() && session.Over() {
				t.Error("the session is over before it was used")
			}
			conns = append(conns, conn)
		}
		next, _ := sessionOverPipe(t, accepted)
		if err := p.Add(next.Carrier()); err != nil {
			t.Fatal(err)
		}
		if err := p.Ping(t.Context()); err != nil || next.Over() {
			t.Errorf("a ping, for which there is the session only: %v, and it is over: %t", err, next.Over())
		}
		for _, conn := range conns {
			_ = conn.Close()
			_ = (<-accepted).Close()
		}
		idle("after use", 4)
		time.Sleep(2 * p.cfg.IdleTime)
		idle("after a while", 1)
		if next.Err() != nil || session.Err() == nil || one.Err() == nil || two.Err() == nil {
			t.Error("the session was closed, or something else was not")
		}
	})
}

// TestSessionsAreReplaced uses up the session of a dialing side's pool: it dials the next one,
// though another carrier is idle.
func TestSessionsAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accepted := make(chan *carrier.Conn, 9)
		var server *carrier.Session
		dials := 0
		p := New(Config{MinIdle: 1, Dial: func(context.Context) (*carrier.Carrier, error) {
			dials++
			near, far := sessionOverPipe(t, accepted)
			server = near
			return far.Carrier(), nil
		}})
		defer p.Close()
		p.Start()
		synctest.Wait()
		_, plain := ends(t, transport.Pipe, accepting(accepted))
		if err := p.Add(plain); err != nil {
			t.Fatal(err)
		}
		for use := 1; use <= 3; use++ {
			if dials != use {
				t.Errorf("before use %d, %d sessions were dialed", use, dials)
			}
			conn, err := server.Carrier().Open(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			_ = (<-accepted).Close()
			synctest.Wait()
		}
	})
}

// TestDrainedCarriersAreClosed drains the dialing side's pool while one of its carriers is in
// use: the other side must not get a refusal on the idle one for as long as that lasts.
func TestDrainedCarriersAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accepted := make(chan *carrier.Conn, 9)
		server := New(Config{MinIdle: 1, OnePeer: true})
		defer server.Close()
		agent := New(Config{MinIdle: 2, Dial: func(ctx context.Context) (*carrier.Carrier, error) {
			a, b := net.Pipe()
			go func() {
				if c, _, err := carrier.Accepted(context.Background(), a, carrier.Config{}); err == nil {
					_ = server.Add(c)
				}
			}()
			return carrier.Dialed(ctx, b, carrier.Hello{}, carrier.Config{Role: carrier.Acceptor, Handler: accepting(accepted)})
		}})
		agent.Start()
		synctest.Wait()
		conn, err := server.Open(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := server.Stats(); got.Idle != 2 || got.InUse != 1 {
			t.Fatalf("the server has %+v", got)
		}
		drained := make(chan error, 1)
		go func() { drained <- agent.Drain(t.Context()) }()
		synctest.Wait()
		if got := server.Stats(); got.Idle != 0 || got.InUse != 1 {
			t.Errorf("beside the agent's drain, the server has %+v, want what is in use", got)
		}
		_ = conn.Close()
		_ = (<-accepted).Close()
		if err := <-drained; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := server.Stats(); got.Idle+got.InUse != 0 {
			t.Errorf("after the agent's drain, the server has %+v", got)
		}
	})
}
