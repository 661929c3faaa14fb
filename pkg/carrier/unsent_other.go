//go:build !linux

package carrier

import "net"

// boundUnsent leaves the queue as long as the system makes it.
func boundUnsent(*net.TCPConn) {}
