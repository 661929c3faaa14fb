package carrier

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"
)

func TestTuneReachesTheSocket(t *testing.T) {
	a, b := tcp(t)
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
		"TCP_KEEPINTVL":    {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 10},
		"TCP_KEEPCNT":      {syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 2},
		"TCP_USER_TIMEOUT": {syscall.IPPROTO_TCP, tcpUserTimeout, 21000},
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

// TestSilentConnectionsHoldNoBuffers lets connections carry big frames both ways,
// and weighs them when they are silent.
func TestSilentConnectionsHoldNoBuffers(t *testing.T) {
	const n, size = 16, 3 * MaxFrame
	address := listen(t, echo) // in the kernel, without a buffer
	weigh := func() int {
		runtime.GC() // twice, as a sync.Pool keeps things for one
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	data := make([]byte, size)
	before := weigh()
	for range n {
		client, _ := chain(t, tcp, relayTo(address))
		cn := mustOpen(t, client)
		defer cn.Close()
		wrote := make(chan error, 1)
		go func() {
			_, err := cn.Write(data)
			wrote <- err
		}()
		if _, err := io.ReadFull(cn, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
	}
	// Four buffers of 64 KiB would be in use; four carriers have 2 KiB each. Those
	// who wrote the last bytes may not wait for more yet.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); ; <-tick.C {
		each := (weigh() - before) / n
		if each <= 32<<10 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("a silent connection holds %d KiB in client and relays", each>>10)
		}
	}
}
