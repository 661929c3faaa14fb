//go:build !linux

package dial

import (
	"net"
	"time"
)

func withUserTimeout(tcp *net.TCPConn, _ time.Duration) net.Conn { return tcp }

// IsBroken is false where the kernel does not tell.
func IsBroken(*net.TCPConn) bool { return false }

// IsUnacknowledged is false where the kernel does not tell.
func IsUnacknowledged(net.Conn) bool { return false }
