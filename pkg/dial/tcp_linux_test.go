package dial

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"open-cluster-management.io/cluster-proxy/test/testkit/carriertest"
	"open-cluster-management.io/cluster-proxy/test/testkit/transport"
)

// impatient is short, and as long as the kernel lets probes be apart.
const impatient = time.Second

// tuned makes a connection of which both ends give their peer up soon.
func tuned(t *testing.T) (near, far net.Conn) {
	near, far = transport.TCP(t)
	return TCP{UserTimeout: impatient}.Tune(near), TCP{UserTimeout: impatient}.Tune(far)
}

// wait waits for real time: kernels have no other.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-t.Context().Done():
	}
}

func TestTuneReachesTheSocket(t *testing.T) {
	a, b := transport.TCP(t)
	defer a.Close()
	defer b.Close()
	TCP{KeepAlive: 7 * time.Second, UserTimeout: 21 * time.Second}.Tune(a)
	raw, err := a.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	options := map[string]struct{ level, option, want int }{
		"SO_KEEPALIVE":     {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
		"TCP_KEEPIDLE":     {syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 7},
		"TCP_KEEPINTVL":    {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 4},
		"TCP_KEEPCNT":      {syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 3},
		"TCP_USER_TIMEOUT": {syscall.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 0},
	}
	_ = raw.Control(func(fd uintptr) {
		for name, o := range options {
			if got, err := syscall.GetsockoptInt(int(fd), o.level, o.option); err != nil || got != o.want {
				t.Errorf("%s = %d, %v; want %d", name, got, err, o.want)
			}
		}
	})
	TCP{}.Tune(&net.UnixConn{}) // must not mind
}

// TestSilentPeerIsGivenUp drops the packets of a peer, so that it acknowledges
// nothing and resets nothing.
func TestSilentPeerIsGivenUp(t *testing.T) {
	for name, fill := range map[string]int{"data in flight": 0, "behind a shut window": 16 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, far := tuned(t)
			defer near.Close()
			defer far.Close()
			wrote := make(chan error, 1)
			go func() {
				_, err := near.Write(make([]byte, fill))
				wrote <- err
			}()
			wait(t, 2*impatient) // the window is shut
			carriertest.Swallow(t, far)
			began := time.Now()
			if fill == 0 {
				<-wrote
				_, err := near.Write([]byte("x"))
				wrote <- err
			}
			_, err := near.Read(make([]byte, 1))
			if !errors.Is(err, syscall.ETIMEDOUT) {
				t.Errorf("reading: %v, want %v", err, syscall.ETIMEDOUT)
			}
			if took := time.Since(began); took < impatient {
				t.Errorf("given up after %s, want %s", took, impatient)
			}
			if err := <-wrote; fill > 0 && !errors.Is(err, syscall.ETIMEDOUT) {
				t.Errorf("writing: %v, want %v", err, syscall.ETIMEDOUT)
			}
		})
	}
}

// TestOneWaySilenceIsSilence has a peer that goes on sending, while nothing
// reaches it.
func TestOneWaySilenceIsSilence(t *testing.T) {
	t.Parallel()
	near, far := transport.TCP(t)
	near = TCP{UserTimeout: impatient}.Tune(near)
	defer near.Close()
	defer far.Close()
	carriertest.Swallow(t, far)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		tick := time.NewTicker(impatient / 20)
		defer tick.Stop()
		for ctx.Err() == nil {
			_, _ = far.Write([]byte("x"))
			<-tick.C
		}
	}()
	if _, err := near.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, near); !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("reading: %v, want %v", err, syscall.ETIMEDOUT)
	}
}

// TestPartitionOfSecondsHeals loses all packets of a connection, both ways, for
// five seconds.
func TestPartitionOfSecondsHeals(t *testing.T) {
	t.Parallel()
	const partition = 5 * time.Second
	near, far := transport.TCP(t)
	near = TCP{UserTimeout: 10 * time.Second}.Tune(near)
	far = TCP{UserTimeout: 10 * time.Second}.Tune(far)
	defer near.Close()
	defer far.Close()
	healNear, healFar := carriertest.Swallow(t, near), carriertest.Swallow(t, far)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	for _, conn := range []net.Conn{near, far} {
		if _, err := conn.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, partition)
	healNear()
	healFar()
	for _, conn := range []net.Conn{near, far} {
		got := make([]byte, len(data))
		if n, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d of %d bytes arrived after a partition of %s: %v; are they right: %t", n, len(data), partition, err, bytes.Equal(got, data))
		}
	}
}

// TestIdleTransportIsNotPolled counts what thousands of idle sockets cost.
func TestIdleTransportIsNotPolled(t *testing.T) {
	t.Parallel()
	near, far := transport.TCP(t)
	near = TCP{UserTimeout: 10 * impatient}.Tune(near) // the first look after a write comes late enough for the test's own
	defer near.Close()
	defer far.Close()
	w := near.(*watchedConn)
	watching := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.watching
	}
	for range 2 {
		if watching() {
			t.Error("it is looked at before anything was sent")
		}
		if _, err := near.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if !watching() {
			t.Error("it is not looked at after something was sent")
		}
		for watching() {
			wait(t, impatient/looks)
		}
	}
}

func TestSilence(t *testing.T) {
	const s = 1000 // in the kernel's milliseconds
	type look struct {
		after time.Duration
		info  unix.TCPInfo
	}
	for name, tc := range map[string]struct {
		looks []look
		want  time.Duration
	}{
		"nothing was ever acknowledged": {[]look{
			{3 * time.Second, unix.TCPInfo{Unacked: 1, Snd_wnd: 9, Last_ack_recv: 3600 * s, Last_data_sent: s}}}, 3 * time.Second},
		"silent since the last acknowledgement": {[]look{
			{3 * time.Second, unix.TCPInfo{Unacked: 2, Snd_wnd: 9, Last_ack_recv: 2 * s, Bytes_acked: 5}},
			{9 * time.Second, unix.TCPInfo{Unacked: 1, Snd_wnd: 9, Last_ack_recv: 8 * s, Bytes_acked: 5}}}, 8 * time.Second},
		"acknowledges more and more": {[]look{
			{3 * time.Second, unix.TCPInfo{Unacked: 2, Snd_wnd: 9, Last_ack_recv: 0, Bytes_acked: 5}},
			{9 * time.Second, unix.TCPInfo{Unacked: 2, Snd_wnd: 9, Last_ack_recv: s, Bytes_acked: 6}}}, time.Second},
		"sends, but acknowledges nothing new": {[]look{
			{3 * time.Second, unix.TCPInfo{Unacked: 1, Snd_wnd: 9, Last_ack_recv: 3 * s}},
			{9 * time.Second, unix.TCPInfo{Unacked: 1, Snd_wnd: 9, Last_ack_recv: 0, Last_data_sent: s}}}, 9 * time.Second},
		"shut its window, and was not asked": {[]look{
			{30 * time.Second, unix.TCPInfo{Notsent_bytes: 9, Last_ack_recv: 30 * s}}}, 0},
		"shut its window, and does not answer": {[]look{
			{30 * time.Second, unix.TCPInfo{Notsent_bytes: 9, Last_ack_recv: 30 * s}},
			{40 * time.Second, unix.TCPInfo{Notsent_bytes: 9, Last_ack_recv: 40 * s, Probes: 2}}}, 10 * time.Second},
		"shut its window, and answers": {[]look{
			{30 * time.Second, unix.TCPInfo{Notsent_bytes: 9, Last_ack_recv: 30 * s, Probes: 1}},
			{40 * time.Second, unix.TCPInfo{Notsent_bytes: 9, Last_ack_recv: 2 * s, Probes: 1}}}, 2 * time.Second},
		"shut its window behind data, and answers": {[]look{
			{60 * time.Second, unix.TCPInfo{Unacked: 1, Last_ack_recv: 50 * s, Last_data_sent: 50 * s}}}, 0},
		"shut its window behind data, and does not answer": {[]look{
			{60 * time.Second, unix.TCPInfo{Unacked: 1, Last_ack_recv: 50 * s, Last_data_sent: s}}}, 50 * time.Second},
	} {
		began := time.Now()
		peer, got := silence{since: began}, time.Duration(0)
		for _, l := range tc.looks {
			got = peer.measure(&l.info, began.Add(l.after))
		}
		if got != tc.want {
			t.Errorf("a peer that %s is silent for %s, want %s", name, got, tc.want)
		}
	}
}
