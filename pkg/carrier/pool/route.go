package pool

import (
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

const (
	// maxRoutes is how many hosts are in a generation of routes; there are two.
	maxRoutes = 4096
	// maxSpare is how many idle carriers above MinIdle there may be because Opens found
	// none to a server that they should go to. They are closed like all surplus ones.
	maxSpare = 16
	// replaceAgain is the pause before another idle carrier is given up for one that may
	// lead to a server that Opens should go to.
	replaceAgain = 500 * time.Millisecond
)

// routes are the servers that peers have named for hosts. They are hints: each server
// reaches all hosts, and what it answers renews them. A host that is not dialed is
// forgotten after maxRoutes others at least. The zero value has none.
type routes struct {
	young, old map[string][]string
}

func (r *routes) of(host string) []string {
	if names, ok := r.young[host]; ok {
		return names
	}
	names, ok := r.old[host]
	if ok {
		r.set(host, names)
	}
	return names
}

func (r *routes) set(host string, names []string) {
	if len(names) == 0 {
		delete(r.young, host)
		delete(r.old, host)
		return
	}
	if _, ok := r.young[host]; !ok && len(r.young) >= maxRoutes || r.young == nil {
		r.young, r.old = map[string][]string{}, r.young
	}
	r.young[host] = names
}

// learn notes which servers the answer to an OPEN for an address names.
func (p *Pool) learn(address string, conn *carrier.Conn, err error) {
	host, _, wrong := net.SplitHostPort(address)
	if !p.cfg.Hedge || wrong != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.routes.set(host, conn.Servers())
	case carrier.CodeOf(err) == carrier.NoAgent:
		p.routes.set(host, nil)
	}
}

// choose returns the place of an idle carrier for an address: the one used last to any of
// the servers that were named for it, each as likely as the others, and else the one used
// last. It misses if there is none to the server that it would have taken first: else a
// server that no idle carrier leads to would get none of the dials. There must be an
// idle carrier; mu is held.
func (p *Pool) choose(address string) (at int, misses bool) {
	last := len(p.idle) - 1
	if !p.cfg.Hedge {
		return last, false
	}
	host, _, _ := net.SplitHostPort(address)
	names := p.routes.of(host)
	if len(names) == 0 {
		return last, false
	}
	first := rand.IntN(len(names))
	for i := range names {
		name := names[(first+i)%len(names)]
		for at, one := range slices.Backward(p.idle) {
			if one.c.PeerName() == name {
				return at, i > 0
			}
		}
	}
	return last, true
}

// missed dials one more carrier, which may lead to a server that no idle one leads to,
// unless one is being dialed or the last dial failed. Once there are enough, it takes the
// place of the one that was not used for longest, and not too often: the address may not
// lead to that server at all. mu is held.
func (p *Pool) missed() {
	if p.cfg.Dial == nil || p.dialing > 0 || p.failures > 0 || p.draining {
		return
	}
	if len(p.idle)+1 >= p.cfg.MinIdle+maxSpare { // with the one that was just taken
		if time.Since(p.replaced) < replaceAgain {
			return
		}
		p.replaced = time.Now()
		oldest := p.idle[0].c
		p.idle = slices.Delete(p.idle, 0, 1)
		go oldest.Drain() // which calls CarrierClosed
	}
	p.startDials(1, 0)
}
