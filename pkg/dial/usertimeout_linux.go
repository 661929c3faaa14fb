package dial

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// withUserTimeout returns a connection that ends when its peer does not acknowledge
// for d, but not because the peer takes nothing more.
func withUserTimeout(tcp *net.TCPConn, d time.Duration) net.Conn {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return tcp
	}
	// Unanswered segments are sent again often enough for a verdict in time.
	// Kernels before 6.15 do not know this option: there, retransmissions and
	// probes of a window that was shut for long are up to two minutes apart.
	most := max(d/6, time.Second)
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, int(most.Milliseconds()))
	})
	w := &watchedConn{Conn: tcp, tcp: tcp, raw: raw, timeout: d, unsent: unsent{bound: leastUnsent}}
	w.unsent.apply(raw)
	return w
}

// watchedConn is a connection that is checked while something that it has sent is not
// acknowledged. It has no TCP_USER_TIMEOUT: Linux counts a shut window like a missing
// acknowledgement, though every probe is answered (tcp(7)), and would end a connection
// whose reader pauses for as long and drop what the send buffer holds.
type watchedConn struct {
	net.Conn // hides ReadFrom, which would write past Write
	tcp      *net.TCPConn
	raw      syscall.RawConn
	timeout  time.Duration

	mu       sync.Mutex
	timer    *time.Timer
	watching bool // the timer runs
	writers  int
	peer     silence
	unsent   unsent
	err      error // why the connection was given up
}

// looks is how many times within the timeout a connection is looked at.
const looks = 10

// CloseWrite sends what was written, and then the end of it.
func (w *watchedConn) CloseWrite() error { return w.explained("close", w.tcp.CloseWrite()) }

// SyscallConn is part of syscall.Conn. Only reading may bypass Write and Read.
func (w *watchedConn) SyscallConn() (syscall.RawConn, error) { return w.raw, nil }

// NetConn is what crypto/tls calls the connection below.
func (w *watchedConn) NetConn() net.Conn { return w.tcp }

func (w *watchedConn) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	return n, w.explained("read", err)
}

func (w *watchedConn) Write(b []byte) (int, error) {
	began := time.Now()
	w.mu.Lock()
	if w.writers++; !w.watching {
		w.watching, w.peer = true, silence{since: began}
		if w.timer == nil {
			w.timer = time.AfterFunc(w.timeout/looks, w.look)
		} else {
			w.timer.Reset(w.timeout / looks)
		}
	}
	w.mu.Unlock()
	n, err := w.Conn.Write(b)
	w.mu.Lock()
	w.writers--
	if w.unsent.wrote(n, began, time.Now()) {
		w.unsent.apply(w.raw)
	}
	w.mu.Unlock()
	return n, w.explained("write", err)
}

// look closes the connection if its time is over, and checks it again while there is
// something that the peer has not acknowledged.
func (w *watchedConn) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	info, err := infoOf(w.raw)
	if err != nil || info.State == tcpClose || info.Unacked == 0 && info.Notsent_bytes == 0 && w.writers == 0 {
		w.watching = false
		return
	}
	next := w.timeout / looks
	switch quiet := w.peer.measure(info, time.Now()); {
	case quiet < w.timeout:
		next = min(next, w.timeout-quiet)
	case info.Unacked > 0 || info.Probes >= lostProbes:
		w.watching = false
		w.err = fmt.Errorf("the peer acknowledged nothing for %s: %w", w.timeout, syscall.ETIMEDOUT)
		_ = w.tcp.SetLinger(0) // nothing that is left will arrive
		_ = w.tcp.Close()
		return
	}
	w.timer.Reset(next)
}

// explained is err, or why the connection was given up.
func (w *watchedConn) explained(op string, err error) error {
	if err == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil || !errors.Is(err, net.ErrClosed) {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: w.tcp.LocalAddr(), Addr: w.tcp.RemoteAddr(), Err: w.err}
}

// lostProbes is how many unanswered probes of a shut window mean that the peer is gone.
// A few may be lost, and one under way.
const lostProbes = 4

// tcpClose is TCP_CLOSE of linux/tcp_states.h.
const tcpClose = 7

// silence is how long an acknowledgement of the peer has been outstanding.
type silence struct {
	since time.Time // that something was sent, or acknowledged last
	acked uint64    // how many bytes were then
	known bool      // acked is
}

// measure brings the silence up to date with what the kernel says.
func (s *silence) measure(info *unix.TCPInfo, now time.Time) time.Duration {
	// Since when the peer has acknowledged nothing at all.
	heard := now.Add(-time.Duration(info.Last_ack_recv) * time.Millisecond)
	switch {
	case info.Unacked > 0 && info.Snd_wnd > 0:
		// The peer has room for what is in flight. A packet of its own, which
		// acknowledges what is known already, is no answer.
		if !s.known || s.acked != info.Bytes_acked {
			s.since = later(s.since, heard)
		}
	case info.Unacked > 0:
		// The window was shut behind what is in flight. The peer is well as long
		// as it answers what is sent again.
		if s.since = later(s.since, heard); info.Last_ack_recv <= info.Last_data_sent {
			s.since = now
		}
	case info.Probes > 0:
		s.since = later(s.since, heard)
	default:
		s.since = now // the window is shut, or a Write is about to go on
	}
	s.acked, s.known = info.Bytes_acked, true
	return now.Sub(s.since)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// IsBroken reports whether the connection was reset or given up, which is known
// before anything is read from it. It is false where the kernel does not tell.
func IsBroken(tcp *net.TCPConn) bool {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	info, err := infoOf(raw)
	return errors.Is(err, net.ErrClosed) || err == nil && info.State == tcpClose
}

// IsUnacknowledged reports whether the peer has not acknowledged something that
// was sent on the TCP connection below nc.
func IsUnacknowledged(nc net.Conn) bool {
	tcp := TCPConnOf(nc)
	if tcp == nil {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	info, err := infoOf(raw)
	return err == nil && info.Unacked > 0
}

// infoOf is the kernel's TCP_INFO. Fields that an old kernel does not know are zero.
func infoOf(raw syscall.RawConn) (info *unix.TCPInfo, err error) {
	controlErr := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	return info, errors.Join(controlErr, err)
}
