package carrier

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"open-cluster-management.io/cluster-proxy/test/testkit/transport"
)

// nettests are nettest's subtests in their order. Each makes one pipe.
var nettests = []string{"BasicIO", "PingPong", "RacyRead", "RacyWrite", "ReadTimeout", "WriteTimeout", "PastTimeout",
	"PresentTimeout", "FutureTimeout", "CloseTimeout", "ConcurrentMethods"}

// writesAfterTimeout are those of nettests that write again after a write that
// timed out, or may have, when crypto/tls has given up. They get TCP in place of TLS.
var writesAfterTimeout = []string{"FutureTimeout", "ConcurrentMethods"}

func TestNettest(t *testing.T) {
	for name, make := range map[string]transport.Maker{"pipe": transport.Pipe, "TCP": transport.TCP, "TLS": transport.TLS} {
		t.Run(name, func(t *testing.T) {
			left := nettests
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				if len(left) == 0 {
					return nil, nil, nil, fmt.Errorf("nettest has more subtests than %q", nettests)
				}
				subtest, under := left[0], make
				left = left[1:]
				if name == "TLS" && slices.Contains(writesAfterTimeout, subtest) {
					under = transport.TCP
				}
				accepted := newChan()
				opener, acceptor := ends(t, under, accepting(accepted))
				a, err := opener.Open(t.Context(), request)
				if err != nil {
					return nil, nil, nil, err
				}
				stop := func() {
					_ = opener.Close()
					_ = acceptor.Close()
				}
				return a, <-accepted, stop, nil
			})
			// With -run some of them may be left out.
			if pattern := flag.Lookup("test.run").Value.String(); len(left) > 0 && !strings.Contains(pattern, "/") {
				t.Errorf("nettest made %d pipes, want one for each of %q", len(nettests)-len(left), nettests)
			}
		})
	}
}

func newChan() chan *Conn { return make(chan *Conn, 1) }

// opened gives both ends of an open connection.
func opened(t testing.TB, make transport.Maker) (a, b *Conn) {
	t.Helper()
	accepted := newChan()
	opener, _ := ends(t, make, accepting(accepted))
	a, err := opener.Open(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	return a, <-accepted
}

func TestCleanEndMakesTheCarrierIdleAgain(t *testing.T) {
	for name, make := range map[string]transport.Maker{"pipe": transport.Pipe, "TCP": transport.TCP, "TLS": transport.TLS} {
		t.Run(name, func(t *testing.T) {
			accepted := newChan()
			opener, _ := ends(t, make, accepting(accepted))
			for range 50 {
				a, err := opener.Open(t.Context(), request)
				if err != nil {
					t.Fatal(err)
				}
				b := <-accepted
				if a.RemoteAddr().String() != "10.0.0.2:2" || a.LocalAddr().String() != "10.0.0.1:1" {
					t.Errorf("addresses %v, %v; want 10.0.0.1:1, 10.0.0.2:2", a.LocalAddr(), a.RemoteAddr())
				}
				go func() {
					_, _ = io.Copy(b, b)
					_ = b.Close()
				}()
				sent := bytes.Repeat([]byte("0123456789"), 20000)
				go func() {
					_, _ = a.Write(sent)
					_ = a.CloseWrite()
				}()
				got, err := io.ReadAll(a)
				if err != nil || !bytes.Equal(got, sent) {
					t.Fatalf("got %d bytes, error %v, want the %d bytes that were sent", len(got), err, len(sent))
				}
				if err := a.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestCutOffIsNeverACleanEnd(t *testing.T) {
	for name, make := range map[string]transport.Maker{"pipe": transport.Pipe, "TCP": transport.TCP, "TLS": transport.TLS} {
		t.Run(name, func(t *testing.T) {
			a, b := opened(t, make)
			go func() {
				_, _ = b.Write([]byte("abc"))
				_ = b.Carrier().Close()
			}()
			got, err := io.ReadAll(a)
			if string(got) != "abc" || CodeOf(err) != CutOff || errors.Is(err, io.EOF) {
				t.Errorf("got %q, error %v, want \"abc\" and CutOff", got, err)
			}
		})
	}
}

func TestAbortArrivesWithItsCode(t *testing.T) {
	a, b := opened(t, transport.TLS)
	b.Abort(&Error{Code: CutOff, Message: "target reset it"})
	_, err := io.ReadAll(a)
	var e *Error
	if !errors.As(err, &e) || e.Code != CutOff || !e.Reset || e.Message != "target reset it" {
		t.Errorf("error %v, want %v with a reset and the message", err, CutOff)
	}
}

func TestRefuse(t *testing.T) {
	opener, _ := ends(t, transport.TCP, func(_ context.Context, p *Pending) {
		_ = p.Refuse(&Error{Code: Denied, Message: strings.Repeat("x", 5000)})
	})
	for range 3 {
		_, err := opener.Open(t.Context(), request)
		if CodeOf(err) != Denied {
			t.Errorf("error %v, want %v", err, Denied)
		}
	}
}

func TestCancelClosesTheCarrierAndTellsTheHandler(t *testing.T) {
	told := make(chan error, 1)
	started := make(chan struct{})
	opener, acceptor := ends(t, transport.TCP, func(ctx context.Context, p *Pending) {
		close(started)
		<-ctx.Done()
		told <- context.Cause(ctx)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	if _, err := opener.Open(ctx, request); CodeOf(err) != Canceled {
		t.Errorf("error %v, want %v", err, Canceled)
	}
	if err := <-told; CodeOf(err) != Canceled {
		t.Errorf("handler was told %v, want Canceled", err)
	}
	<-acceptor.Done()
}

func TestCloseWhileThePeerSendsResets(t *testing.T) {
	a, b := opened(t, transport.TLS)
	go func() { _ = a.Close() }()
	buf := make([]byte, 32<<10)
	var err error
	for err == nil {
		_, err = b.Write(buf)
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("error %v, want an *Error", err)
	}
}

// TestCloseEndsWhatWaitsItsTurn closes a connection while a Read and a Write wait for others. The
// bytes that Close leaves to be read and written come before them, and may take long.
func TestCloseEndsWhatWaitsItsTurn(t *testing.T) {
	for name, turn := range map[string]func(*Carrier) chan struct{}{"Read": func(c *Carrier) chan struct{} { return c.rsem }, "Write": func(c *Carrier) chan struct{} { return c.wsem }} {
		synctest.Test(t, func(t *testing.T) {
			a, _ := opened(t, transport.Pipe)
			held := turn(a.c)
			held <- struct{}{}
			ended := make(chan error, 1)
			go func() {
				do := a.Read
				if name == "Write" {
					do = a.Write
				}
				_, err := do(make([]byte, 1))
				ended <- err
			}()
			synctest.Wait()
			_ = a.Close()
			synctest.Wait()
			select {
			case err := <-ended:
				if err == nil {
					t.Errorf("%s does something after Close", name)
				}
			default:
				t.Errorf("%s waits on after Close", name)
			}
			<-held
		})
	}
}

// TestCloseEndsARead: a Read ends when its own side closes, and does not wait for a peer
// that is silent.
func TestCloseEndsARead(t *testing.T) {
	for name, pair := range map[string]transport.Maker{"TCP": transport.TCP, "TLS": transport.TLS} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				accepted := newChan()
				opener, _ := ends(t, pair, accepting(accepted))
				opener.cfg.Linger = time.Hour
				a, err := opener.Open(t.Context(), request)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := (<-accepted).Write([]byte("a")); err != nil {
					t.Fatal(err)
				}
				var once [1]byte
				if _, err := a.Read(once[:]); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				reading := make(chan struct{})
				go func() {
					close(reading)
					_, err := a.Read(once[:])
					ended <- err
				}()
				<-reading
				_ = a.Close()
				select {
				case err := <-ended:
					if err == nil {
						t.Fatal("the Read got something of a silent peer")
					}
				case <-time.After(time.Minute):
					t.Fatal("the Read goes on after Close")
				}
			}
		})
	}
}

func TestDrain(t *testing.T) {
	accepted := newChan()
	opener, acceptor := ends(t, transport.TCP, accepting(accepted))
	a, err := opener.Open(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	b := <-accepted
	acceptor.Drain()
	_ = a.CloseWrite()
	if _, err := io.ReadAll(b); err != nil {
		t.Error(err)
	}
	_ = b.Close()
	if _, err := io.ReadAll(a); err != nil {
		t.Error(err)
	}
	if _, err := opener.Open(t.Context(), request); CodeOf(err) != Draining {
		t.Errorf("error %v, want %v", err, Draining)
	}
}

func TestHelloTakesNoLongerThanItsContext(t *testing.T) {
	_, b := transport.TCP(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, _, err := Accepted(ctx, b, Config{}); CodeOf(err) != TimedOut {
		t.Errorf("error %v, want %v", err, TimedOut)
	}
}

func TestAcceptingSideTellsItsName(t *testing.T) {
	a, b := net.Pipe()
	dialed := make(chan *Carrier, 1)
	go func() {
		c, err := Dialed(t.Context(), a, Hello{Session: "s"}, Config{Role: Acceptor, Handler: accepting(nil)})
		if err != nil {
			t.Error(err)
		}
		dialed <- c
	}()
	accepted, hello, err := Accepted(t.Context(), b, Config{Name: "server-1"})
	if err != nil || hello.Session != "s" {
		t.Fatalf("HELLO = %+v, %v; want session s", hello, err)
	}
	c := <-dialed
	if c.PeerName() != "server-1" {
		t.Errorf("the peer's name is %q, want %q", c.PeerName(), "server-1")
	}
	_ = c.Close()
	_ = accepted.Close()
}
