package carrier

import (
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
