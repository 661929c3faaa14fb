package carrier

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"open-cluster-management.io/cluster-proxy/test/testkit/transport"
)

// TestAnswerLeavesTheRightToWriteAlone answers a request twice, as the carrier
// does when a handler returns. The second answer must neither wait for a Write of
// the connection nor take its place: a Close that found it there took it for a
// Write, and cut off what had been written.
func TestAnswerLeavesTheRightToWriteAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accepted, again, blocked := newChan(), make(chan error, 1), make(chan struct{})
		opener, _ := ends(t, transport.Pipe, func(_ context.Context, p *Pending) {
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

// raw is the far end of a carrier that is driven by hand.
func raw(t *testing.T, cfg Config) (c *Carrier, far net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	go func() {
		_, _ = far.Write(controlFrame(FrameHello, Hello{Version: Version}.append))
		_, _ = readHello(far)
	}()
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
				c.Drain()
				go func() { drained <- c.WaitIdle(t.Context()) }()
				time.Sleep(time.Hour)
				synctest.Wait()
				select {
				case <-drained:
					t.Error("drained before the last FIN was written")
				default:
				}
				got := make([]byte, HeaderSize)
				if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, frame(FrameFin, "")) {
					t.Errorf("the peer got %x, %v, want FIN", got, err)
				}
				if err := <-drained; err != nil {
					t.Error(err)
				}
				_ = c.Close()
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
		to, acceptor := ends(t, transport.Pipe, accepting(out))
		cn, err := to.Open(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		Splice(<-in, cn, func(int64, int64) {})
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
	a, b := opened(t, transport.TCP)
	defer a.Close()
	defer b.Close()
	_ = a.SetDeadline(deadline)
	if _, err := a.Write([]byte("x")); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("writing an hour before the deadline: %v", err)
	}
}
