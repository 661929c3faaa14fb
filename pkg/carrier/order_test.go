package carrier

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// TestAnswerLeavesTheRightToWriteAlone answers a request twice, as the carrier
// does when a handler returns. The second answer must neither wait for a Write of
// the connection nor take its place: a Close that found it there took it for a
// Write, and cut off what had been written.
func TestAnswerLeavesTheRightToWriteAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accepted, again, blocked := newChan(), make(chan error, 1), make(chan struct{})
		opener, _ := ends(t, pipe, func(_ context.Context, p *Pending) {
			cn, err := p.Accept(Endpoints{})
			if err != nil {
				t.Error(err)
			}
			go func() { _, _ = cn.Write([]byte("blocked in the pipe")) }()
			<-blocked
			again <- p.Refuse(errors.New("late"))
			accepted <- cn
		})
		a, err := opener.Open(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		close(blocked)
		synctest.Wait()
		select {
		case err := <-again:
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("the second answer: %v, want %v", err, net.ErrClosed)
			}
		default:
			t.Error("the second answer waits for a Write")
		}
		_ = a.Close()
		_ = (<-accepted).Close()
	})
}

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
	for name, end := range map[string]func(p *Pending, cn chan<- *Conn){
		"after REFUSE": func(p *Pending, _ chan<- *Conn) { _ = p.Refuse(&Error{Code: Denied}) },
		"after FIN": func(p *Pending, cns chan<- *Conn) {
			cn, err := p.Accept(Endpoints{})
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
				slow, cns := &slowToReturn{Conn: y}, make(chan *Conn, 1)
				served := 0
				hold := make(chan struct{})
				opener, acceptor := endsOver(t, x, slow, func(_ context.Context, p *Pending) {
					if served++; served == 1 {
						end(p, cns)
						return
					}
					<-hold // busy
				})
				pool := NewPool(PoolConfig{MinIdle: 1})
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
			opener, acceptor := ends(t, pipe, accepting(cns))
			if _, err := opener.Open(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			pool := NewPool(PoolConfig{MinIdle: 1})
			_ = pool.Add(acceptor)
			if s := pool.Stats(); s.InUse != 1 || s.Idle != 0 {
				t.Errorf("%+v, want one in use", s)
			}
			_ = pool.Close()
		})
	})
}

// raw is the far end of a carrier that is driven by hand.
func raw(t *testing.T, cfg Config) (c *Carrier, far net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	go func() { _, _ = far.Write(controlFrame(FrameHello, Hello{Version: Version}.append)) }()
	c, _, err := Accepted(t.Context(), near, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, far
}

func frame(t FrameType, payload string) []byte {
	return append(AppendHeader(nil, t, len(payload)), payload...)
}

// TestDrainWaitsForTheLastFIN has a peer that has sent its own, and takes ours
// late.
func TestDrainWaitsForTheLastFIN(t *testing.T) {
	for name, role := range map[string]Role{"opener": Opener, "acceptor": Acceptor} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cns := newChan()
				c, far := raw(t, Config{Role: role, Handler: accepting(cns)})
				pool := NewPool(PoolConfig{})
				_ = pool.Add(c)
				var cn *Conn
				if role == Opener {
					go func() {
						cn, err := c.Open(t.Context(), request)
						if err != nil {
							t.Error(err)
						}
						cns <- cn
					}()
					_, _ = io.ReadFull(far, make([]byte, len(controlFrame(FrameOpen, request.append))))
					_, _ = far.Write(frame(FrameAccept, ""))
				} else {
					_, _ = far.Write(controlFrame(FrameOpen, request.append))
					_, _ = io.ReadFull(far, make([]byte, len(controlFrame(FrameAccept, Endpoints{Local: "10.0.0.1:1", Remote: "10.0.0.2:2"}.append))))
				}
				cn = <-cns
				go func() { _, _ = io.ReadAll(cn) }()
				_, _ = far.Write(frame(FrameFin, ""))
				go func() { _ = cn.CloseWrite() }()
				synctest.Wait()
				drained := make(chan error, 1)
				go func() { drained <- pool.Drain(t.Context()) }()
				time.Sleep(time.Hour)
				synctest.Wait()
				select {
				case <-drained:
					t.Error("drained before the last FIN was written")
				default:
				}
				got := make([]byte, HeaderSize)
				if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, frame(FrameFin, "")) {
					t.Errorf("the peer got %x, %v", got, err)
				}
				if err := <-drained; err != nil {
					t.Error(err)
				}
				_ = pool.Close()
				_ = far.Close()
			})
		})
	}
}

// TestSpliceDeliversWhatCameBeforeRESET has both come in one read.
func TestSpliceDeliversWhatCameBeforeRESET(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := make(chan *Conn, 1), make(chan *Conn, 1)
		from, far := raw(t, Config{Role: Acceptor, Handler: accepting(in)})
		_, _ = far.Write(controlFrame(FrameOpen, request.append))
		_, _ = io.ReadFull(far, make([]byte, len(controlFrame(FrameAccept, Endpoints{Local: "10.0.0.1:1", Remote: "10.0.0.2:2"}.append))))
		to, acceptor := ends(t, pipe, accepting(out))
		cn, err := to.Open(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		Splice(<-in, cn)
		reset := controlFrame(FrameReset, (&Error{Code: Canceled, Message: "enough"}).append)
		_, _ = far.Write(append(frame(FrameData, "the last words"), reset...))
		got, err := io.ReadAll(<-out)
		if string(got) != "the last words" || CodeOf(err) != Canceled {
			t.Errorf("read %q, %v; want all that came before the RESET, and its code", got, err)
		}
		_ = from.Close()
		_ = acceptor.Close()
		_ = far.Close()
	})
}

// TestDeadlinesFollowTheMonotonicClock has a deadline of which only the wall clock
// says that it has passed, as after a step of the clock.
func TestDeadlinesFollowTheMonotonicClock(t *testing.T) {
	deadline := time.Now().Add(time.Hour)
	wall := (*uint64)(unsafe.Pointer(&deadline))
	*wall -= 2 * 3600 << 30 // seconds are above the nanoseconds
	if !deadline.After(time.Now()) || deadline.Unix() > time.Now().Unix() {
		t.Skip("package time keeps its clocks in another way")
	}
	a, b := opened(t, tcp)
	defer a.Close()
	defer b.Close()
	_ = a.SetDeadline(deadline)
	if _, err := a.Write([]byte("x")); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("writing an hour before the deadline: %v", err)
	}
}

// TestPoolHurriesForThoseWhoWait has a long pause end when somebody comes.
func TestPoolHurriesForThoseWhoWait(t *testing.T) {
	for name, come := range map[string]func(*Pool){
		"a user":   func(p *Pool) { go func() { _, _ = p.Open(context.Background(), request) }() },
		"the peer": func(p *Pool) { p.Request(1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dials := 0
				p := NewPool(PoolConfig{
					MinIdle: 1,
					Dial:    func(context.Context) (*Carrier, error) { dials++; return nil, errors.New("no route") },
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
