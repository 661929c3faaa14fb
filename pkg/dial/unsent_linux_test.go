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

// TestUnsentFollowsTheRate writes at some rate. The kernel's queue may hold as
// much as the transport takes in unsentTime, as far as that is within the bounds.
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
		{"100 Mbit/s", 12 << 20, leastUnsent, 1000, mostUnsent},
		{"1 Gbit/s, before the run is long enough", 110 << 20, mostUnsent, 31, mostUnsent},
		{"1 Gbit/s, after one run", 110 << 20, mostUnsent, 32, 2 * mostUnsent},
		{"1 Gbit/s", 110 << 20, leastUnsent, 1000, 110 << 20 / 100},
		{"10 Gbit/s", 1100 << 20, leastUnsent, 2000, mostUnsentFast},
		{"400 Mbit/s", 48 << 20, leastUnsent, 1000, 48 << 20 / 100},
		{"1 Gbit/s that became 100 Mbit/s", 12 << 20, 1 << 20, 1000, 1 << 20},
		{"1 Gbit/s that became 24 Mbit/s", 3 << 20, 1 << 20, 20, mostUnsent},
		{"10 Gbit/s that became slow", 31 << 10, mostUnsentFast, 4, leastUnsent},
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

// TestUnsentOfALongQueue has a slow link take bursts into a queue that is empty again
// before the next one. It never counts as fast.
func TestUnsentOfALongQueue(t *testing.T) {
	const record, queue, rate = 16 << 10, 256 << 10, 2 << 20
	u, now := unsent{bound: leastUnsent}, time.Unix(0, 0)
	for burst := range 20 {
		room := queue
		for range 40 {
			began := now
			if room < record {
				now = now.Add(time.Duration(record) * time.Second / rate)
			}
			room = max(0, room-record)
			now = now.Add(time.Microsecond)
			u.wrote(record, began, now)
		}
		if u.bound > mostUnsent {
			t.Fatalf("%d bytes may be unsent after burst %d, want %d at most", u.bound, burst+1, mostUnsent)
		}
		now = now.Add(queue * time.Second / rate)
	}
}

// TestUnsentOfWritesThatWait has a fast link whose writer is woken when half of what may
// be unsent is sent, as the kernel does it: most writes take no time, and one takes all.
func TestUnsentOfWritesThatWait(t *testing.T) {
	const record, rate = 16 << 10, 500 << 20
	u, now, unsent := unsent{bound: leastUnsent}, time.Unix(0, 0), 0
	reached := false
	for range 10_000 {
		began := now
		if unsent += record; unsent >= u.bound {
			now = now.Add(time.Duration(u.bound/2) * time.Second / rate)
			unsent -= u.bound / 2
		}
		u.wrote(record, began, now)
		if reached = reached || u.bound == mostUnsentFast; reached && u.bound < mostUnsentFast {
			t.Fatalf("%d bytes may be unsent, want %d as before", u.bound, mostUnsentFast)
		}
	}
	if !reached {
		t.Errorf("%d bytes may be unsent, want %d", u.bound, mostUnsentFast)
	}
}

// TestUnsentForgetsPauses has a transport be idle for an hour between two bursts.
func TestUnsentForgetsPauses(t *testing.T) {
	u, now := unsent{bound: leastUnsent}, time.Unix(0, 0)
	for range 3 {
		for range 30 {
			u.wrote(16<<10, now, now.Add(time.Microsecond))
			now = now.Add(time.Microsecond)
		}
		if u.bound != mostUnsent {
			t.Errorf("%d bytes may be unsent, want %d", u.bound, mostUnsent)
		}
		now = now.Add(time.Hour)
	}
}
