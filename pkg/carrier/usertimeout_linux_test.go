//go:build !386 && !s390x

package carrier

import (
	"io"
	"net"
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

// TestSlowReaderIsNotGivenUp lets a reader pause for longer than the user
// timeout. Linux would end the connection.
func TestSlowReaderIsNotGivenUp(t *testing.T) {
	const timeout = 2 * time.Second
	raw, b := tcp(t)
	a := TCP{UserTimeout: timeout}.Tune(raw)
	defer a.Close()
	defer b.Close()
	const size = 32 << 20
	wrote := make(chan error, 1)
	go func() {
		_, err := a.Write(make([]byte, size))
		wrote <- err
	}()
	pause := time.NewTimer(2 * timeout)
	defer pause.Stop()
	select {
	case err := <-wrote:
		t.Fatalf("writing to a reader that pauses: %v", err)
	case <-pause.C:
	}
	if got := userTimeout(t, raw); got != 0 {
		t.Errorf("TCP_USER_TIMEOUT is %s while the reader pauses", got)
	}
	if n, err := io.CopyN(io.Discard, b, size); err != nil {
		t.Errorf("%d of %d bytes arrived: %v", n, size, err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	if got := userTimeout(t, raw); got != timeout {
		t.Errorf("TCP_USER_TIMEOUT is %s after the reader went on", got)
	}
}

func userTimeout(t *testing.T, nc net.Conn) (d time.Duration) {
	t.Helper()
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		ms, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout)
		if err != nil {
			t.Error(err)
		}
		d = time.Duration(ms) * time.Millisecond
	})
	return d
}
