//go:build !386 && !s390x

package carrier

import (
	"net"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of linux/tcp.h, which package syscall
// lacks on some architectures.
const tcpUserTimeout = 18

func setUserTimeout(raw syscall.RawConn, d time.Duration) {
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
	})
}

// withUserTimeout gives a connection up when its peer does not acknowledge for
// d, but not because the peer takes nothing more.
func withUserTimeout(tcp *net.TCPConn, d time.Duration) net.Conn {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return tcp
	}
	setUserTimeout(raw, d)
	return &patientConn{Conn: tcp, tcp: tcp, raw: raw, timeout: d}
}

// patientConn has its user timeout off while a Write waits for a peer that has
// acknowledged all that it was sent. Linux counts such a wait like a missing
// acknowledgement (tcp(7)), and would end a connection whose reader pauses for
// as long, though every probe of its window is answered.
type patientConn struct {
	net.Conn // hides ReadFrom, which would write past Write
	tcp      *net.TCPConn
	raw      syscall.RawConn
	timeout  time.Duration

	mu      sync.Mutex
	timer   *time.Timer // runs while there are writers
	writers int
	off     bool // the user timeout
}

// writeStalls is after what time a Write is looked at, again and again.
const writeStalls = 500 * time.Millisecond

// lostProbes is how many unanswered probes of a shut window make a peer that is
// gone. One may be lost, and one under way.
const lostProbes = 4

// NetConn is what crypto/tls calls the connection below.
func (p *patientConn) NetConn() net.Conn { return p.tcp }

func (p *patientConn) Write(b []byte) (int, error) {
	p.mu.Lock()
	if p.writers++; p.writers == 1 {
		if p.timer == nil {
			p.timer = time.AfterFunc(writeStalls, p.look)
		} else {
			p.timer.Reset(writeStalls)
		}
	}
	p.mu.Unlock()
	n, err := p.Conn.Write(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writers--; p.writers == 0 {
		p.timer.Stop()
		p.turn(false)
	}
	return n, err
}

func (p *patientConn) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writers == 0 {
		return
	}
	info, ok := infoOf(p.raw)
	p.turn(ok && info.Unacked == 0 && info.Probes < lostProbes)
	p.timer.Reset(writeStalls)
}

// turn turns the user timeout off or on again; mu is held.
func (p *patientConn) turn(off bool) {
	if p.off == off {
		return
	}
	p.off = off
	if off {
		setUserTimeout(p.raw, 0)
	} else {
		setUserTimeout(p.raw, p.timeout)
	}
}

// isBroken reports whether the connection was reset or given up. That one is
// known before anything is read from it.
func isBroken(tcp *net.TCPConn) bool {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	const closed = 7 // TCP_CLOSE of linux/tcp_states.h
	info, ok := infoOf(raw)
	return ok && info.State == closed
}

// infoOf is the kernel's TCP_INFO.
func infoOf(raw syscall.RawConn) (info syscall.TCPInfo, ok bool) {
	size := uint32(unsafe.Sizeof(info))
	_ = raw.Control(func(fd uintptr) {
		_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
		ok = errno == 0
	})
	return info, ok
}
