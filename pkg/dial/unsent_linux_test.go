package dial

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLittleWaitsInTheKernel writes to a peer that reads nothing until writes
// wait. The kernel may hold no more unsent bytes than mostUnsent and a segment.
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
		if err != nil || unsent > mostUnsent+segment {
			t.Errorf("%d bytes are unsent, %v; want %d at most", unsent, err, mostUnsent+segment)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// TestUnsentFollowsTheRate writes at some rate. What may wait in the kernel becomes
// what the transport takes in unsentTime, as far as that is within the bounds.
func TestUnsentFollowsTheRate(t *testing.T) {
	const record = 16 << 10
	for _, test := range []struct {
		name   string
		rate   int // bytes a second
		before int
		writes int
		want   int
	}{
		{"a fast link, at first", 100 << 20, leastUnsent, 4, 2 * leastUnsent},
		{"a fast link", 100 << 20, leastUnsent, 100, mostUnsent},
		{"a quarter of 1 Mbit/s", 31 << 10, leastUnsent, 100, leastUnsent},
		{"a link that became slow", 31 << 10, mostUnsent, 4, leastUnsent},
		{"a link in between", 600 << 10, leastUnsent, 100, 60 << 10},
		{"a link that became a little faster", 700 << 10, 60 << 10, 100, 70 << 10},
		{"a link that became a little slower", 600 << 10, 70 << 10, 100, 70 << 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			u, now := unsent{bound: test.before}, time.Unix(0, 0)
			for range test.writes {
				began := now
				now = now.Add(time.Duration(record) * time.Second / time.Duration(test.rate))
				u.wrote(record, began, now)
			}
			if d := u.bound - test.want; d < -1<<10 || d > 1<<10 {
				t.Errorf("%d bytes may be unsent, want %d", u.bound, test.want)
			}
		})
	}
}

// TestUnsentForgetsPauses has a transport be idle for an hour between two bursts.
func TestUnsentForgetsPauses(t *testing.T) {
	u, now := unsent{bound: leastUnsent}, time.Unix(0, 0)
	for range 3 {
		for range 100 {
			u.wrote(16<<10, now, now.Add(time.Microsecond))
			now = now.Add(time.Microsecond)
		}
		if u.bound != mostUnsent {
			t.Errorf("%d bytes may be unsent, want %d", u.bound, mostUnsent)
		}
		now = now.Add(time.Hour)
	}
}
