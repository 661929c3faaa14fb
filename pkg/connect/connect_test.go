package connect

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
)

// end is one side of a connection: it gives what it has, then err.
type end struct {
	io.Reader
	err    error
	closed chan struct{}
	half   bool
	got    strings.Builder
}

func newEnd(text string, err error) *end {
	return &end{Reader: strings.NewReader(text), err: err, closed: make(chan struct{})}
}

func (e *end) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if n > 0 || err == nil {
		return n, nil
	}
	if e.err == nil {
		<-e.closed // nothing more comes
		return 0, net.ErrClosed
	}
	return 0, e.err
}
func (e *end) Write(p []byte) (int, error) { return e.got.Write(p) }
func (e *end) CloseWrite() error           { e.half = true; return nil }
func (e *end) Close() error {
	select {
	case <-e.closed:
	default:
		close(e.closed)
	}
	return nil
}

func TestJoinPassesCleanEndsOn(t *testing.T) {
	a, b := newEnd("from a", io.EOF), newEnd("from b", io.EOF)
	if err := Join(a, b); err != nil {
		t.Error(err)
	}
	if a.got.String() != "from b" || b.got.String() != "from a" || !a.half || !b.half {
		t.Errorf("a got %q (%v), b got %q (%v); want what the other one sent, and a half-close", a.got.String(), a.half, b.got.String(), b.half)
	}
}

func TestAskAndAccept(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "refused:1" {
			http.Error(w, "no", http.StatusTeapot)
			return
		}
		conn, err := Accept(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if err := Join(conn, newEnd("hello", io.EOF)); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	ask := func(target string) (net.Conn, error) {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return Ask(t.Context(), conn, target, http.Header{})
	}
	conn, err := ask("target:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v, want \"hello\"", got, err)
	}
	_, err = ask("refused:1")
	if refusal := new(Refusal); !errors.As(err, &refusal) || refusal.Code != http.StatusTeapot || !strings.Contains(err.Error(), "I'm a teapot") || string(refusal.Body) != "no\n" {
		t.Errorf("refused with %v, want 418 with its text and body", err)
	}
}

// Callers look the options of a connection up by its type.
func TestAskLeavesAConnectionAsItIs(t *testing.T) {
	for _, early := range []string{"", "hello"} {
		here, there := net.Pipe()
		defer here.Close()
		go func() {
			defer there.Close()
			if _, err := http.ReadRequest(bufio.NewReader(there)); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(there, "HTTP/1.1 200 Connection established\r\n\r\n"+early)
		}()
		conn, err := Ask(t.Context(), here, "target:1", http.Header{})
		if err != nil {
			t.Fatal(err)
		}
		if early == "" && conn != here {
			t.Errorf("gives %T for the connection, want the connection itself", conn)
		}
		if got, err := io.ReadAll(conn); err != nil || string(got) != early {
			t.Errorf("got %q, %v behind the answer, want %q", got, err, early)
		}
	}
}

func TestAskWaitsAsLongAsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		go func() { _, _ = io.Copy(io.Discard, there) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if _, err := Ask(ctx, here, "silent:1", http.Header{}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("error %v after %s, want DeadlineExceeded after a minute", err, time.Since(began))
		}
	})
}

// TestAskReadsHeadersOfOneSize has the other side send headers without an end.
func TestAskReadsHeadersOfOneSize(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	sent := make(chan int)
	go func() {
		defer there.Close()
		if _, err := http.ReadRequest(bufio.NewReader(there)); err != nil {
			t.Error(err)
		}
		total := 0
		defer func() { sent <- total }()
		_, err := io.WriteString(there, "HTTP/1.1 200 Connection established\r\n")
		for ; err == nil && total < 16<<20; total += 1 << 10 {
			_, err = io.WriteString(there, "A: "+strings.Repeat("a", 1<<10-5)+"\r\n")
		}
	}()
	if _, err := Ask(t.Context(), here, "target:1", http.Header{}); err == nil {
		t.Error("headers without an end are an answer")
	}
	_ = here.Close()
	if total := <-sent; total > 2*httprelay.MaxHeaderBytes {
		t.Errorf("%d KiB of headers were read, want about %d", total>>10, httprelay.MaxHeaderBytes>>10)
	}
}
