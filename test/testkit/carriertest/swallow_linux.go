package carriertest

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Swallow drops every packet that arrives for a TCP connection from now on, as a
// network does that has lost one of its ends: the kernel acknowledges nothing and
// resets nothing. A filter on the socket does it, which needs no privilege. The
// connection's own bytes go out: swallow both ends for a silence both
// ways. The function it returns heals the connection.
func Swallow(t testing.TB, nc net.Conn) (heal func()) {
	t.Helper()
	for {
		over, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		nc = over.NetConn()
	}
	raw, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	dropAll := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	set := func(option func(fd int) error) {
		t.Helper()
		var failed error
		if err := raw.Control(func(fd uintptr) { failed = option(int(fd)) }); err != nil || failed != nil {
			t.Errorf("setting a filter on a socket: %v, %v", err, failed)
		}
	}
	set(func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &dropAll[0]})
	})
	return func() {
		set(func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) })
	}
}
