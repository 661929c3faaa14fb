package carrier

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLittleWaitsInTheKernel writes to a peer that reads nothing until writes
// wait. The kernel may hold no more unsent bytes than maxUnsent and a segment.
func TestLittleWaitsInTheKernel(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	nc, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	peer, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	tuned := TCP{}.Tune(nc)
	if err := tuned.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := tuned.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes went to a peer that reads nothing, %v", n, err)
	}
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const segment = 64 << 10
	if err := raw.Control(func(fd uintptr) {
		unsent, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD)
		if err != nil || unsent > maxUnsent+segment {
			t.Errorf("%d bytes are unsent, %v; want %d at most", unsent, err, maxUnsent+segment)
		}
	}); err != nil {
		t.Fatal(err)
	}
}
