//go:build !linux

package carrier

import (
	"net"
	"time"
)

func setUserTimeout(*net.TCPConn, time.Duration) {}
