package lab

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
)

// ports hands out free local ports. They lie below the range from which the
// kernel takes ports of outgoing connections, where a port that is free now may
// be somebody's local port a moment later.
type ports struct {
	mu    sync.Mutex
	taken map[int]bool
}

const (
	firstPort = 20000
	lastPort  = 32000
)

func (p *ports) next() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken == nil {
		p.taken = map[int]bool{}
	}
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if p.taken[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		_ = l.Close()
		p.taken[port] = true
		return port, nil
	}
	return 0, fmt.Errorf("finding a free port between %d and %d: none found", firstPort, lastPort)
}

// many fills each of the given variables with a free port.
func (p *ports) many(into ...*int) (err error) {
	for _, port := range into {
		if *port, err = p.next(); err != nil {
			return err
		}
	}
	return nil
}

// OwnAddress is an IPv4 address of this machine that is not loopback: what is
// sent there does not leave it, and Kubernetes takes it for a pod's. It is
// invalid if there is none.
func OwnAddress() netip.Addr {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}
	}
	for _, address := range addresses {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil && prefix.Addr().Is4() && prefix.Addr().IsGlobalUnicast() {
			return prefix.Addr()
		}
	}
	return netip.Addr{}
}
