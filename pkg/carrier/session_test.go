package carrier

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/test/testkit/transport"
)

// sessions makes both ends of a control session, which the test serves.
func sessions(t *testing.T, near, far net.Conn, cfg SessionConfig) (dialed, accepted *Session) {
	t.Helper()
	return sessionsOf(t, near, far, SessionConfig{}, cfg)
}

// sessionsOf is sessions with a configuration of the dialed end as well, but for its pings.
func sessionsOf(t *testing.T, near, far net.Conn, dialing, cfg SessionConfig) (dialed, accepted *Session) {
	t.Helper()
	made := make(chan *Session, 1)
	go func() {
		hello, err := ReadHello(t.Context(), far)
		if err != nil {
			t.Errorf("reading HELLO: %v", err)
			close(made)
			return
		}
		s := AcceptSession(far, hello, cfg)
		if err := s.Answer(t.Context(), Hello{Session: "server", Servers: 3}); err != nil {
			t.Errorf("answering HELLO: %v", err)
		}
		made <- s
	}()
	dialing.PingAfter = 24 * time.Hour // pings would cross, and net.Pipe holds nothing
	dialed, err := DialSession(t.Context(), near, Hello{Session: "agent", Identifiers: "host=c1", Features: []string{"more"}}, dialing)
	if err != nil {
		t.Fatal(err)
	}
	return dialed, <-made
}

// serving serves a session, and returns what it handled and how it ended.
func serving(s *Session) (got <-chan Control, ended <-chan error) {
	messages, end := make(chan Control, 100), make(chan error, 1)
	s.Start(func(m Control) { messages <- m }, func(err error) { end <- err })
	return messages, end
}

func TestSessionCarriesMessagesBothWays(t *testing.T) {
	for name, make := range map[string]transport.Maker{"pipe": transport.Pipe, "TCP": transport.TCP, "TLS": transport.TLS} {
		t.Run(name, func(t *testing.T) {
			near, far := make(t)
			agent, server := sessions(t, near, far, SessionConfig{})
			if diff := cmp.Diff(Hello{Version: 1, Session: "server", Servers: 3, Features: []string{FeatureControl}}, agent.Peer()); diff != "" {
				t.Errorf("the answer: %s", diff)
			}
			if diff := cmp.Diff(Hello{Version: 1, Session: "agent", Identifiers: "host=c1", Features: []string{FeatureControl, "more"}}, server.Peer()); diff != "" {
				t.Errorf("the HELLO: %s", diff)
			}
			atAgent, agentEnded := serving(agent)
			atServer, serverEnded := serving(server)
			want := []Control{{Kind: 64, Number: 7}, {Kind: 65}, {Kind: 1 << 40, Number: 1 << 63}}
			var both sync.WaitGroup
			for _, s := range []*Session{agent, server} {
				both.Go(func() {
					for _, m := range want {
						if err := s.Send(m); err != nil {
							t.Error(err)
						}
					}
				})
			}
			both.Wait()
			for end, messages := range map[string]<-chan Control{"agent": atAgent, "server": atServer} {
				for _, m := range want {
					if got := <-messages; got != m {
						t.Errorf("the %s got %+v, want %+v", end, got, m)
					}
				}
			}
			server.Abort(&Error{Code: Draining, Message: "goes"})
			if err := <-agentEnded; CodeOf(err) != Draining || !strings.Contains(err.Error(), "goes") {
				t.Errorf("the agent's end: %v, want what the server said", err)
			}
			if err := <-serverEnded; CodeOf(err) != Draining {
				t.Errorf("the server's end: %v, want its own reason", err)
			}
			if err := agent.Send(want[0]); CodeOf(err) != Draining {
				t.Errorf("a message after the end: %v, want the reason of the end", err)
			}
		})
	}
}

// TestSessionEndsWithoutAnswers leaves a session alone for hours, in which it lives by
// its pings. Then one end stops answering, and must be given up within 40 s.
func TestSessionEndsWithoutAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		mute := &muted{Conn: far, hear: make(chan struct{})}
		agent, server := sessions(t, near, mute, SessionConfig{Most: 60})
		_, agentEnded := serving(agent)
		_, serverEnded := serving(server)
		time.Sleep(5 * time.Hour)
		select {
		case err := <-agentEnded:
			t.Fatalf("a session without messages ended: %v", err)
		case err := <-serverEnded:
			t.Fatalf("a session without messages ended: %v", err)
		default:
		}
		close(mute.hear)
		began := time.Now()
		err := <-serverEnded
		if took := time.Since(began); CodeOf(err) != TimedOut || took > 41*time.Second {
			t.Errorf("a silent peer ended the session with %v after %s, want that it timed out after 40s at most", err, took)
		}
		<-agentEnded
	})
}

// muted is a connection to which nothing comes any more once hear is closed: what
// arrives is lost.
type muted struct {
	net.Conn
	hear chan struct{}
}

func (m *muted) Read(b []byte) (int, error) {
	for {
		n, err := m.Conn.Read(b)
		select {
		case <-m.hear:
			if err == nil {
				continue
			}
		default:
		}
		return n, err
	}
}

// TestMessagesWaitForTheAnswer sends before HELLO is answered: it must come first.
func TestMessagesWaitForTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		server := AcceptSession(far, Hello{}, SessionConfig{})
		go func() { _ = server.Send(Control{Kind: 65, Number: 1}) }()
		synctest.Wait()
		go func() { _ = server.Answer(t.Context(), Hello{Session: "server"}) }()
		for _, want := range []FrameType{FrameHello, FrameControl} {
			if got, _, err := readFrame(near); err != nil || got != want {
				t.Errorf("frame %d, %v; want %d", got, err, want)
			}
		}
		_ = server.Close()
		_, far = net.Pipe()
		server = AcceptSession(far, Hello{}, SessionConfig{})
		_ = server.Close()
		if err := server.Answer(t.Context(), Hello{}); err == nil {
			t.Error("a session that was closed is answered")
		}
	})
}

// TestSessionsOfOthers dials peers that take no control session, each in its way.
func TestSessionsOfOthers(t *testing.T) {
	for name, test := range map[string]struct {
		peer func(context.Context, net.Conn)
		want func(error) bool
	}{
		"one that refuses": {func(ctx context.Context, nc net.Conn) {
			if _, err := ReadHello(ctx, nc); err == nil {
				Refuse(nc, &Error{Code: Denied, Message: "not yours"})
			}
		}, func(err error) bool { return CodeOf(err) == Denied && strings.Contains(err.Error(), "not yours") }},
		"one that ends": {func(ctx context.Context, nc net.Conn) {
			_, _ = ReadHello(ctx, nc)
			_ = nc.Close()
		}, func(err error) bool { return CodeOf(err) == CutOff }},
		"one that is silent": {func(ctx context.Context, nc net.Conn) { _, _ = io.Copy(io.Discard, nc) },
			func(err error) bool { return CodeOf(err) == TimedOut }},
		"one that talks nonsense": {func(ctx context.Context, nc net.Conn) {
			_, _ = ReadHello(ctx, nc)
			_, _ = nc.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		}, func(err error) bool { return CodeOf(err) == Protocol }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				done := make(chan struct{})
				go func() { defer close(done); test.peer(ctx, far) }()
				_, err := DialSession(ctx, near, Hello{Session: "agent"}, SessionConfig{})
				if err == nil || !test.want(err) {
					t.Errorf("DialSession: %v", err)
				}
				_ = far.Close()
				<-done
			})
		})
	}
	near, _ := net.Pipe()
	if _, err := DialSession(t.Context(), near, Hello{Identifiers: strings.Repeat("x", MaxControl)}, SessionConfig{}); CodeOf(err) != Protocol {
		t.Errorf("a HELLO that is too long: %v, want a violation that is not sent", err)
	}
}

// TestSessionViolations sends what has no place on a control session.
func TestSessionViolations(t *testing.T) {
	many := slices.Repeat(controlFrame(FrameControl, Control{Kind: controlPong}.append), 61)
	for name, sent := range map[string][]byte{
		"OPEN":              controlFrame(FrameOpen, request.append),
		"HELLO again":       controlFrame(FrameHello, Hello{Version: 1}.append),
		"DATA":              append(AppendHeader(nil, FrameData, 2), "hi"...),
		"FIN":               AppendHeader(nil, FrameFin, 0),
		"an unknown type":   {99, 0, 0, 0},
		"too long":          AppendHeader(nil, FrameControl, MaxControl+1),
		"a broken payload":  append(AppendHeader(nil, FrameControl, 2), 0x08, 0x80),
		"too many messages": many,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				_, server := sessions(t, near, far, SessionConfig{Most: 60})
				_, ended := serving(server)
				go func() { _, _ = near.Write(sent) }()
				kind, payload, err := readFrame(near)
				if reason, _ := decodeError(payload, true); err != nil || kind != FrameReset || reason.Code != Protocol {
					t.Errorf("the answer is frame %d with %v, %v; want RESET(18)", kind, reason, err)
				}
				if err := <-ended; CodeOf(err) != Protocol {
					t.Errorf("the session ended with %v, want a violation", err)
				}
				_ = near.Close()
			})
		})
	}
}

// FuzzSession has a session read anything: it ends, and answers nothing but pings.
func FuzzSession(f *testing.F) {
	f.Add(controlFrame(FrameControl, Control{Kind: 64, Number: 3}.append))
	f.Add(controlFrame(FrameControl, Control{Kind: controlPing}.append))
	f.Add(controlFrame(FrameReset, (&Error{Code: CutOff, Message: "m"}).append))
	f.Add([]byte{8, 0, 0, 2, 0x08, 0x80})
	f.Add([]byte{8, 0, 8, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		near, far := net.Pipe()
		s := newSession(far, Hello{}, SessionConfig{Most: 60})
		done := make(chan error, 1)
		messages := 0
		s.Start(func(Control) { messages++ }, func(err error) { done <- err })
		read := make(chan []byte, 1)
		go func() {
			got, _ := io.ReadAll(near)
			read <- got
		}()
		_, _ = near.Write(b)
		_ = near.Close()
		if err := <-done; err == nil {
			t.Error("a session ended without a reason")
		}
		for got := <-read; len(got) > 0; {
			kind, n, err := ParseHeader(got)
			if err != nil || len(got) < HeaderSize+n || kind != FrameControl && kind != FrameReset {
				t.Fatalf("it answered %x", got)
			}
			got = got[HeaderSize+n:]
		}
		if messages > 60 {
			t.Errorf("%d messages were handled, want 60 at most", messages)
		}
	})
}
