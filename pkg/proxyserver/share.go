package proxyserver

import (
	"fmt"
	"sync"
	"sync/atomic"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

const (
	// maxAgents is how many agents one cluster may have at a time. An agent whose
	// control session broke silently counts until the session's pings time out.
	maxAgents = 64
	// maxSessions is how many control sessions one agent may have at a time. The
	// oldest makes room, since it is the most likely to be broken.
	maxSessions = 8
	// maxIdle is how many carriers of one agent may be idle. An agent keeps a few
	// ready, and has more for a minute after it was busy.
	maxIdle = 128
)

// clusterShare is what the agents of one cluster have together. A certificate
// names a cluster and not an agent: limits of one agent would bound nothing.
type clusterShare struct {
	// taking is held from the look at the limits of carriers until one more counts.
	taking   sync.Mutex
	maxDials int64
	dials    atomic.Int64                 // that no agent has answered
	agents   map[*connectedAgent]struct{} // under agentRegistry.mu
}

var errTooManyDials = &carrier.Error{Code: carrier.Overloaded, Message: "too many pending dials of this cluster"}

// begin counts a dial, and reports whether there may be one more.
func (s *clusterShare) begin() bool {
	if s.dials.Add(1) > s.maxDials {
		s.dials.Add(-1)
		return false
	}
	return true
}

func (s *clusterShare) end() { s.dials.Add(-1) }

// shareOf is the share of a new agent of a cluster; mu is held.
func (a *agentRegistry) shareOf(cluster string) *clusterShare {
	share := a.clusters[cluster]
	if share == nil {
		share = &clusterShare{maxDials: int64(a.config.MaxPending), agents: map[*connectedAgent]struct{}{}}
		a.clusters[cluster] = share
	}
	return share
}

// checkAgentCount reports whether a cluster may have one more agent; mu is held.
func (a *agentRegistry) checkAgentCount(cluster string) error {
	if share := a.clusters[cluster]; share != nil && len(share.agents) >= maxAgents {
		a.refused("sessions")
		return fmt.Errorf("cluster %q has %d agents already, the most that one may have; stop some, or wait a minute for those that are gone", cluster, maxAgents)
	}
	return nil
}

// checkCarriers reports whether an agent may have one more carrier; the share's taking
// is held.
func (a *agentRegistry) checkCarriers(agent *connectedAgent) error {
	if stats := agent.pool.Stats(); stats.Pending == 0 && stats.Idle >= maxIdle {
		a.refused("idle carriers")
		return &carrier.Error{Code: carrier.Overloaded, Message: "too many idle carriers"}
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	all := 0
	for other := range agent.share.agents {
		stats := other.pool.Stats()
		all += stats.Idle + stats.InUse
	}
	if all >= a.config.Max {
		a.refused("carriers")
		return &carrier.Error{Code: carrier.Overloaded, Message: "too many carriers of this cluster"}
	}
	return nil
}
