package carrier

import (
	"net"

	"golang.org/x/sys/unix"
)

// maxUnsent is how many bytes may wait in the kernel until the network takes
// them. Requests that share a transport take turns above the kernel; what is in
// its queue goes first, whatever comes later. Linux lets that queue grow to 4 MiB,
// half a minute at 1 Mbit/s.
const maxUnsent = 128 << 10

// boundUnsent has writes wait while maxUnsent bytes are unsent. What is sent and
// not acknowledged does not count, so that a long link is used in full.
func boundUnsent(tcp *net.TCPConn) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	})
}
