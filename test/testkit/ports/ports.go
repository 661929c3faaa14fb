// Package ports reserves local ports for processes that tests start and that
// must be told a port before they listen.
//
// A port that the kernel chose and that was closed again belongs to nobody: the
// kernel may give it to the next outgoing connection, and another test may get
// the same answer. Ports of this package lie below the range from which the
// kernel takes ports, and in blocks: a process that listens on the first port of
// a block owns the rest of it for as long as it lives. The kernel frees the
// block when the process ends, however it ends.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
)

const (
	lowest    = 10000
	highest   = 29999 // NodePorts begin above
	blockSize = 20
)

var process pool

// Next returns a port that no other process takes and that Next does not return
// again. Nothing listened there a moment ago.
func Next() (int, error) { return process.next() }

// Take is Next for a test.
func Take(t testing.TB) int {
	t.Helper()
	port, err := Next()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Fill sets each of the variables to a port of its own.
func Fill(into ...*int) (err error) {
	for _, port := range into {
		if *port, err = Next(); err != nil {
			return err
		}
	}
	return nil
}

// pool is the blocks of one process.
type pool struct {
	mu     sync.Mutex
	guards []net.Listener // hold the blocks
	free   []int
}

func (p *pool) next() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if len(p.free) == 0 {
			if err := p.takeBlock(); err != nil {
				return 0, err
			}
		}
		port := p.free[0]
		p.free = p.free[1:]
		// Programs that know nothing of blocks may listen anywhere.
		if listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port))); err == nil {
			return port, listener.Close()
		}
	}
}

// takeBlock looks for a block without an owner, from a random one on.
func (p *pool) takeBlock() error {
	top := min(highest, kernelLowest()-1)
	if top-lowest < 100*blockSize {
		// The kernel takes ports from almost everywhere on this machine.
		top = highest
	}
	blocks := (top - lowest + 1) / blockSize
	start := rand.IntN(blocks)
	for i := range blocks {
		first := lowest + (start+i)%blocks*blockSize
		guard, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(first)))
		if err != nil {
			continue
		}
		p.guards = append(p.guards, guard)
		for port := first + 1; port < first+blockSize; port++ {
			p.free = append(p.free, port)
		}
		return nil
	}
	return fmt.Errorf("reserving ports between %d and %d: each block of %d has an owner", lowest, top, blockSize)
}

// kernelLowest returns the first port that the kernel gives to connections
// without one: Linux says it, and other systems use those above 49151.
func kernelLowest() int {
	lowest := 49152
	if raw, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(raw), &lowest)
	}
	return lowest
}
