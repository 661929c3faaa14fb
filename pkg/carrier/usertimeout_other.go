//go:build !linux

package carrier

import (
	"net"
	"time"
)

func withUserTimeout(tcp *net.TCPConn, _ time.Duration) net.Conn { return tcp }

func isBroken(*net.TCPConn) bool { return false }

func isUnacknowledged(net.Conn) bool { return false }
