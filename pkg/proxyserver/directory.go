package proxyserver

import (
	"encoding/json"
	"io"
	"math"
	"net"
	"slices"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// candidates are the agents of an address; mu is held.
func (a *agentRegistry) candidates(address string) map[*connectedAgent]struct{} {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil
	}
	return a.hosts[host]
}

// knows reports whether any agent serves an address.
func (a *agentRegistry) knows(address string) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return len(a.candidates(address)) > 0
}

// clusterOf is the cluster that an address leads to, or empty if only peers know.
func (a *agentRegistry) clusterOf(address string) string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for agent := range a.candidates(address) {
		return agent.key.cluster
	}
	return ""
}

// trust says which agents are good enough for a dial.
type trust bool

const (
	// those that answered when they were asked last. One that drains, or whose server
	// does, must have an idle carrier too: it may not get another one here, since its
	// process ends, or the Service leads to other servers.
	answering trust = false
	suspects  trust = true // any
)

// choose returns the least used agent of an address, or nil.
func (a *agentRegistry) choose(address string, but []*connectedAgent, enough trust) *connectedAgent {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var best *connectedAgent
	var least int
	for agent := range a.candidates(address) {
		if slices.Contains(but, agent) {
			continue
		}
		stats, leaving := agent.pool.Stats(), agent.draining()
		if enough == answering && (agent.alive.IsSuspect() || (leaving || a.draining) && stats.Idle == 0) {
			continue
		}
		// An agent that drains is the last resort.
		used := stats.InUse + stats.Pending
		if leaving {
			used += math.MaxInt / 2
		}
		if best == nil || used < least {
			best, least = agent, used
		}
	}
	return best
}

// follow adds a follower, which is told of everything at first.
func (a *agentRegistry) follow() *follower {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := &follower{hosts: make(map[string]bool, len(a.hosts)), changed: make(chan struct{}, 1)}
	for host := range a.hosts {
		f.hosts[host] = true
	}
	a.followers[f] = struct{}{}
	return f
}

func (a *agentRegistry) unfollow(f *follower) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.followers, f)
}

// news is what a follower is told next.
func (a *agentRegistry) news(f *follower) (news directoryNews) {
	a.mu.RLock()
	news.Draining = a.draining
	a.mu.RUnlock()
	f.take(&news)
	return news
}

// serveDirectory tells a peer which hosts have agents here until either side ends it, or over
// is closed.
func (a *agentRegistry) serveDirectory(request *carrier.Pending, over <-chan struct{}) {
	select {
	case <-over:
		_ = request.Refuse(&carrier.Error{Code: carrier.Draining, Message: "the proxy server stops"})
		return
	default:
	}
	conn, err := request.Accept(carrier.Endpoints{})
	if err != nil {
		return
	}
	defer conn.Close()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, conn)
	}()
	f := a.follow()
	defer a.unfollow(f)
	out := json.NewEncoder(conn)
	for {
		news := a.news(f)
		if err := out.Encode(news); err != nil {
			return
		}
		if !news.Complete {
			continue
		}
		select {
		case <-f.changed:
		case <-gone:
			return
		case <-over:
			return
		}
	}
}
