package tunnel_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel/tunneltest"
)

const target = "cluster1:443"

// pair is a tunnelled connection and its other end, a plain TCP connection.
func pair(t testing.TB, hub *tunneltest.Hub, dialer *tunnel.Dialer) (near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	hub.Forward(target, listener.Addr().String())
	near, err = dialer.DialContext(t.Context(), "tcp", target)
	if err != nil {
		t.Fatal(err)
	}
	far, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

func TestConnHasAddresses(t *testing.T) {
	hub := tunneltest.Start(t)
	near, _ := pair(t, hub, hub.Dialer())
	if got := near.RemoteAddr(); got.String() != target || got.Network() != "tcp" {
		t.Errorf("RemoteAddr() = %s %s, want tcp %s", got.Network(), got, target)
	}
	if _, _, err := net.SplitHostPort(near.LocalAddr().String()); err != nil {
		t.Errorf("LocalAddr: %v", err)
	}
}

func TestLargeWriteArrivesWhole(t *testing.T) {
	hub := tunneltest.Start(t)
	near, far := pair(t, hub, hub.Dialer())
	sent := bytes.Repeat([]byte("0123456789abcdef"), 9<<20/16)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := near.Write(sent); err != nil {
			t.Error(err)
		}
		near.Close()
	})
	got, err := io.ReadAll(far)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes arrived intact: %v", len(got), len(sent), err)
	}
	wg.Wait()
}

func TestTargetSpeaksFirst(t *testing.T) {
	hub := tunneltest.Start(t)
	dialer := hub.Dialer()
	hub.Handle(target, func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			_, _ = far.Write([]byte("hello"))
			far.Close()
		}()
		return near, nil
	})
	for range 30 {
		conn, err := dialer.DialContext(t.Context(), "tcp", target)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if string(got) != "hello" || err != nil {
			t.Fatalf("read %q, %v, want \"hello\"", got, err)
		}
		conn.Close()
	}
}

func TestEnds(t *testing.T) {
	t.Run("by the target is EOF", func(t *testing.T) {
		hub := tunneltest.Start(t)
		near, far := pair(t, hub, hub.Dialer())
		far.Close()
		if _, err := near.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("got %v, want EOF", err)
		}
	})
	t.Run("by a broken hub is an error", func(t *testing.T) {
		hub := tunneltest.Start(t)
		near, _ := pair(t, hub, hub.Dialer())
		hub.Stop()
		if _, err := near.Read(make([]byte, 1)); tunnel.CodeOf(err) != tunnel.Lost {
			t.Errorf("got %v, want code Lost", err)
		}
	})
	t.Run("by Close is ErrClosed", func(t *testing.T) {
		hub := tunneltest.Start(t)
		near, far := pair(t, hub, hub.Dialer())
		near.Close()
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("far end: %v, want EOF", err)
		}
	})
	t.Run("by closing the Dialer is an error", func(t *testing.T) {
		hub := tunneltest.Start(t)
		dialer := hub.Dialer()
		near, _ := pair(t, hub, dialer)
		dialer.Close()
		if _, err := near.Read(make([]byte, 1)); tunnel.CodeOf(err) != tunnel.Lost {
			t.Errorf("got %v, want code Lost", err)
		}
	})
}

// TestStalledPeers writes to and reads from a connection whose other end does
// nothing: deadlines and Close must work in spite of full buffers.
func TestStalledPeers(t *testing.T) {
	hub := tunneltest.Start(t)
	near, far := pair(t, hub, hub.Dialer())
	near.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	chunk := make([]byte, 1<<20)
	var err error
	for err == nil {
		_, err = near.Write(chunk)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("writing to a stalled peer: %v, want a deadline error", err)
	}
	far.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	for err = nil; err == nil; {
		_, err = far.Write(chunk)
	}
	start := time.Now()
	near.Close()
	if took := time.Since(start); took > time.Second {
		t.Errorf("Close took %v, want 1s at most", took)
	}
}
