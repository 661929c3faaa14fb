package agents

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// flood is a target that sends without end, and one that never reads.
func flood(t *testing.T, address string, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp4", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	conns := make(chan net.Conn, 100)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns <- conn
			go serve(conn)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
		close(conns)
		for conn := range conns {
			_ = conn.Close()
		}
	})
	return listener.Addr().String()
}

// besideStalled is how long an exchange beside stalled connections may take.
const besideStalled = 50 * time.Millisecond

// worsts dials and exchanges in rounds and returns the worst time of a round, as
// the median of the rounds, and the worst time of all. The median leaves out what
// a noisy machine does now and then; who waits for a stalled peer waits in each
// round.
func (w *oneTunnel) worsts(t *testing.T, dial dialFunc) (median, worst time.Duration) {
	t.Helper()
	var rounds []time.Duration
	for range 7 {
		slowest := time.Duration(0)
		for range 15 {
			began := time.Now()
			if err := w.target.exchange(t.Context(), dial, soleCluster, 1); err != nil {
				t.Fatal(err)
			}
			slowest = max(slowest, time.Since(began))
		}
		rounds = append(rounds, slowest)
		worst = max(worst, slowest)
	}
	slices.Sort(rounds)
	return rounds[len(rounds)/2], worst
}

// TestStalledPeersDoNotDelayOthers has connections whose reader stops and
// connections whose target stops, of our dialer and of konnectivity's client,
// and exchanges beside them on the same cluster. Those must take no longer than
// besideStalled, or than three times what they took without. The race detector
// costs too much for that to mean anything; make test-scale runs it without.
func TestStalledPeersDoNotDelayOthers(t *testing.T) {
	w := startOneTunnel(t)
	dials := []dialFunc{w.dial, w.stockDial}
	var alone []time.Duration
	for _, dial := range dials {
		median, _ := w.worsts(t, dial)
		alone = append(alone, median)
	}
	sends := flood(t, soleCluster, func(conn net.Conn) { _, _ = io.Copy(conn, zeros{}) })
	silent := flood(t, soleCluster, func(net.Conn) {})
	stalled := make(chan error, 100)
	for _, dial := range dials {
		for range 4 {
			reader, err := dial(t.Context(), "tcp", sends)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { go reader.Close() }() // konnectivity's client waits
			writer, err := dial(t.Context(), "tcp", silent)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { go writer.Close() }()
			go func() {
				_, err := io.CopyN(writer, zeros{}, 512<<20)
				stalled <- err
			}()
		}
	}
	for i, dial := range dials {
		median, worst := w.worsts(t, dial)
		t.Logf("worst dial and exchange of a round beside 16 stalled connections: %s, %s without them; the worst of all took %s", median, alone[i], worst)
		if limit := max(besideStalled, 3*alone[i]) * scale * scale; median > limit {
			t.Errorf("an exchange beside stalled connections takes %s in half of the rounds, want %s at most", median, limit)
		}
		if worst > 9*time.Second { // konnectivity: 10 s and more
			t.Errorf("an exchange took %s, want 9s at most", worst)
		}
	}
	select {
	case err := <-stalled:
		t.Errorf("512 MiB went to a target that does not read: %v", err)
	default:
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestDeadConsumerIsNoticed cuts a client off in the middle of a download. The
// target must hear of it as an error, not wait for ever.
func TestDeadConsumerIsNoticed(t *testing.T) {
	t.Parallel() // it waits
	w := startOneTunnel(t)
	heard := make(chan error, 1)
	sends := flood(t, soleCluster, func(conn net.Conn) {
		_, err := io.Copy(conn, zeros{})
		heard <- err
	})
	conn, err := w.dial(t.Context(), "tcp", sends)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.CopyN(io.Discard, conn, 1<<20); err != nil {
		t.Fatal(err)
	}
	w.clients.cut("")
	select {
	case err := <-heard:
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("the target heard %v, want a reset", err)
		}
	case <-time.After(testTimeout):
		t.Error("the target still sends")
	}
}

// TestDeadProducerIsNoticed cuts a client off in the middle of an upload to a
// target that reads nothing. Nobody reads from the client then, either, and it
// must be noticed nonetheless: the target hears of it, and nothing stays open.
func TestDeadProducerIsNoticed(t *testing.T) {
	t.Parallel() // it waits
	w := startOneTunnel(t)
	heard := make(chan error, 1)
	stalls := flood(t, soleCluster, func(conn net.Conn) {
		// It neither reads nor writes: a write would find the way broken.
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			heard <- err
			return
		}
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			code := 0
			if err := raw.Control(func(fd uintptr) {
				code, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
			}); err != nil {
				return // the test is over
			}
			if code != 0 {
				heard <- syscall.Errno(code)
				return
			}
		}
	})
	conn, err := w.dial(t.Context(), "tcp", stalls)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var sent atomic.Int64
	go func() {
		for {
			n, err := conn.Write(make([]byte, 64<<10))
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
	before, since := int64(-1), time.Now()
	eventually(t, "the upload is stuck", func() bool {
		if now := sent.Load(); now == 0 || now != before {
			before, since = now, time.Now()
		}
		return time.Since(since) > time.Second
	})
	began := time.Now()
	w.clients.cut("")
	select {
	case err := <-heard:
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the target heard %v, want a reset", err)
		}
		t.Logf("the target heard it after %s", time.Since(began).Round(time.Millisecond))
	case <-time.After(testTimeout):
		t.Fatal("the target still waits")
	}
	eventually(t, "no carrier of an agent is in use", func() bool {
		return w.server.metric(t, "cluster_proxy_server_carriers", `side="agents",state="in use"`) == 0
	})
}
