package carrier

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/test/testkit/transport"
)

// openable makes both ends of a control session that an OPEN may come on, and serves them. The
// agent's end hands what it accepts to accepted.
func openable(t *testing.T, near, far net.Conn) (agent, server *Session, accepted <-chan *Conn) {
	t.Helper()
	conns := make(chan *Conn, 10)
	handler := HandlerFunc(func(_ context.Context, p *Pending) {
		if cn, err := p.Accept(Endpoints{}); err == nil {
			conns <- cn
		}
	})
	agent, server = sessionsOf(t, near, far, SessionConfig{Carrier: &Config{Role: Acceptor, Handler: handler}}, SessionConfig{Carrier: &Config{Name: "server"}})
	t.Cleanup(func() { _, _ = agent.c.Close(), server.c.Close() })
	return agent, server, conns
}

// TestSessionBecomesACarrier opens connections on a control session, one after the other. The
// first one ends it, and a ping does not.
func TestSessionBecomesACarrier(t *testing.T) {
	for name, make := range map[string]transport.Maker{"pipe": transport.Pipe, "TCP": transport.TCP, "TLS": transport.TLS} {
		t.Run(name, func(t *testing.T) {
			near, far := make(t)
			agent, server, accepted := openable(t, near, far)
			atAgent, agentEnded := serving(agent)
			atServer, serverEnded := serving(server)
			if !agent.Opens() || !server.Opens() || agent.Carrier().PeerName() != "server" {
				t.Fatal("the two ends do not know that an OPEN may come")
			}
			if _, err := server.Carrier().Open(t.Context(), OpenRequest{Network: NetworkPing}); !Answered(err) {
				t.Errorf("a ping: %v, want an answer", err)
			}
			for _, s := range []*Session{agent, server} {
				if s.Over() || !s.Carrier().InSession() {
					t.Error("a ping ends the session")
				}
				if err := s.Send(Control{Kind: 64, Number: 7}); err != nil {
					t.Errorf("a message after a ping: %v", err)
				}
			}
			for _, got := range []<-chan Control{atAgent, atServer} {
				if m := <-got; m.Number != 7 {
					t.Errorf("got %+v", m)
				}
			}
			for range 3 {
				cn, err := server.Carrier().Open(t.Context(), request)
				if err != nil {
					t.Fatal(err)
				}
				far := <-accepted
				go func() { _, _ = io.Copy(far, far); _ = far.Close() }()
				for _, s := range []*Session{agent, server} {
					if !s.Over() || !s.Carries() || s.Carrier().InSession() {
						t.Error("the session goes on while it carries a connection")
					}
					if err := s.Send(Control{Kind: 64}); !errors.Is(err, errOver) {
						t.Errorf("a message beside a connection: %v, want %v", err, errOver)
					}
					s.Abort(&Error{Code: Draining}) // leaves the connection alone
					_ = s.Close()
				}
				go func() { // a pipe holds nothing
					_, _ = cn.Write([]byte("hello"))
					_ = cn.CloseWrite()
				}()
				if b, err := io.ReadAll(cn); string(b) != "hello" || err != nil {
					t.Errorf("got %q, %v", b, err)
				}
				_ = cn.Close()
				if err := server.Carrier().WaitIdle(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			_ = server.Carrier().Close()
			for _, ended := range []<-chan error{agentEnded, serverEnded} {
				if err := <-ended; CodeOf(err) != CutOff {
					t.Errorf("the carrier's end: %v", err)
				}
			}
		})
	}
}

// TestSessionThatCarriesIsNotPinged has a connection that carries nothing for hours.
func TestSessionThatCarriesIsNotPinged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		agent, server, accepted := openable(t, near, far)
		_, _ = serving(agent)
		_, _ = serving(server)
		time.Sleep(5 * time.Hour) // pings go to and fro
		cn, err := server.Carrier().Open(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		far2 := <-accepted
		time.Sleep(5 * time.Hour)
		go func() { _, _ = far2.Write([]byte("late")) }()
		b := make([]byte, 4)
		if _, err := io.ReadFull(cn, b); err != nil || string(b) != "late" {
			t.Errorf("got %q, %v, want the connection to live", b, err)
		}
	})
}

// TestMessagesBesideOpen has a peer send messages just before and after it got an OPEN: what it
// sent before the answer is heard, and what comes later is a violation.
func TestMessagesBesideOpen(t *testing.T) {
	message := controlFrame(FrameControl, Control{Kind: 64, Number: 7}.append)
	accept := controlFrame(FrameAccept, Endpoints{}.append)
	refuse := controlFrame(FrameRefuse, (&Error{Code: Denied}).append)
	for name, test := range map[string]struct {
		sent  [][]byte
		heard int
		fails bool
	}{
		"before ACCEPT": {[][]byte{message, accept}, 1, false},
		"before REFUSE": {[][]byte{message, message, refuse}, 2, false},
		"after ACCEPT":  {[][]byte{accept, message}, 0, true},
		"after REFUSE":  {[][]byte{message, refuse, message}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				server := AcceptSession(far, Hello{Features: []string{FeatureOpens}}, SessionConfig{Carrier: &Config{}})
				go func() { _ = server.Answer(t.Context(), Hello{Session: "server"}) }()
				if _, _, err := readFrame(near); err != nil {
					t.Fatal(err)
				}
				got, _ := serving(server)
				opened := make(chan *Conn, 1)
				go func() {
					cn, _ := server.Carrier().Open(t.Context(), request)
					opened <- cn
				}()
				if kind, _, err := readFrame(near); err != nil || kind != FrameOpen {
					t.Fatalf("frame %d, %v; want OPEN", kind, err)
				}
				go func() {
					for _, frame := range test.sent {
						_, _ = near.Write(frame)
					}
				}()
				cn := <-opened
				var err error
				if cn != nil && test.fails {
					_, err = cn.Read(make([]byte, 1))
				}
				synctest.Wait()
				if err == nil {
					err = server.Err()
				}
				if failed := CodeOf(err) == Protocol; failed != test.fails || len(got) != test.heard {
					t.Errorf("%d messages were heard, and the carrier's end is %v; want %d, and a violation: %t", len(got), err, test.heard, test.fails)
				}
				_ = near.Close()
				_ = server.Carrier().Close()
			})
		})
	}
}

// TestSessionsThatTakeNoOpen are those of older peers.
func TestSessionsThatTakeNoOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		agent, server := sessions(t, near, far, SessionConfig{Carrier: &Config{}})
		_, _ = serving(agent)
		_, _ = serving(server)
		if agent.Opens() || server.Opens() {
			t.Error("a session of which one end knows nothing of OPEN takes one")
		}
		if _, err := server.Carrier().Open(t.Context(), request); CodeOf(err) != Protocol {
			t.Errorf("an OPEN on it: %v, want a violation that is not sent", err)
		}
		if err := server.Send(Control{Kind: 64}); err != nil {
			t.Errorf("a message after that: %v", err)
		}
		_ = server.Close()
	})
}

// TestMessageAfterOpen sends a message on a session that carries a connection, while that
// writes: it does not wait for the right to write, which it would take from a CloseWrite.
func TestMessageAfterOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		agent, server, _ := openable(t, near, far)
		_, _ = serving(agent)
		_, _ = serving(server)
		if _, err := server.Carrier().Open(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		server.c.wsem <- struct{}{} // a Write
		said := make(chan error, 1)
		go func() { said <- server.Send(Control{Kind: 64}) }()
		synctest.Wait()
		select {
		case err := <-said:
			if !errors.Is(err, errOver) {
				t.Errorf("a message on a session that is over: %v, want %v", err, errOver)
			}
		default:
			t.Error("a message on a session that is over waits for the right to write")
		}
		<-server.c.wsem
	})
}
