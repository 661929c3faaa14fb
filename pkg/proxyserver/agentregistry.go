package proxyserver

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/liveness"
)

// agentRegistry knows the agents that are connected. An agent joins with its control
// session, which decides which hosts lead to the agent; carriers
// say only which session they belong to.
type agentRegistry struct {
	config pool.Config // of each agent's pool
	// sameName is called when the agents of two clusters use one ID.
	sameName func(agent agentKey, other string)
	// expect is called with the source of carriers that users wait for.
	expect func(source netip.Prefix, n int)
	// refused is called with the limit that a cluster has reached.
	refused func(limit string)
	// gone is called with an agent that is out of routing, and whether it had said that it
	// leaves.
	gone func(agent agentKey, draining bool)

	mu     sync.RWMutex
	agents map[agentKey]*connectedAgent
	// names are the clusters of agent IDs: of several, the first one.
	names    map[string]string
	hosts    map[string]map[*connectedAgent]struct{}
	clusters map[string]*clusterShare
	// followers are the peers that are told of hosts.
	followers map[*follower]struct{}
	draining  bool // this server is
	notice    int  // for how many seconds it waits for its agents then
}

func newAgentRegistry(l Limits, sameName func(agent agentKey, other string)) *agentRegistry {
	return &agentRegistry{
		sameName: sameName, expect: func(netip.Prefix, int) {}, refused: func(string) {}, gone: func(agentKey, bool) {}, names: map[string]string{},
		config: pool.Config{MinIdle: l.IdleCarriers, Max: l.MaxCarriers, MaxPending: l.MaxPendingDials,
			IdleTime: l.CarrierIdleTime, OnePeer: true},
		agents: map[agentKey]*connectedAgent{}, hosts: map[string]map[*connectedAgent]struct{}{}, clusters: map[string]*clusterShare{},
		followers: map[*follower]struct{}{},
	}
}

// join adds an agent by its control session, unless its cluster has too many, and reports
// whether it was not known before.
func (a *agentRegistry) join(c control, hosts []string) (agent *connectedAgent, fresh bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	link := c.link()
	key := agentKey{link.cluster, link.agentID}
	agent = a.agents[key]
	if fresh = agent == nil; fresh {
		if err := a.checkAgentCount(key.cluster); err != nil {
			return nil, false, err
		}
		agent = a.newAgent(key, hosts)
		a.agents[key] = agent
		if other, taken := a.names[key.agentID]; !taken {
			a.names[key.agentID] = key.cluster
		} else if other != key.cluster {
			a.sameName(key, other)
		}
		for _, host := range hosts {
			if a.hosts[host] == nil {
				a.hosts[host] = map[*connectedAgent]struct{}{}
			}
			a.hosts[host][agent] = struct{}{}
		}
		a.tellFollowers(hosts, true)
	}
	agent.mu.Lock()
	defer agent.mu.Unlock()
	if listening := agent.addControl(c); len(listening) > maxSessions {
		a.refused("streams")
		go listening[len(listening)-1-maxSessions].end()
	}
	return agent, fresh, nil
}

func (a *agentRegistry) newAgent(key agentKey, hosts []string) *connectedAgent {
	agent := &connectedAgent{key: key, hosts: hosts, share: a.shareOf(key.cluster)}
	agent.share.agents[agent] = struct{}{}
	config := a.config
	config.More = func(n int) {
		for _, source := range agent.sources() {
			a.expect(source, n)
		}
		agent.tell(agentapi.MoreCarriers, n)
	}
	agent.pool = pool.New(config)
	agent.alive = liveness.New(agent.pool.Ping)
	return agent
}

// checkAgentCount reports whether a cluster may have one more agent; mu is held.
func (a *agentRegistry) checkAgentCount(cluster string) error {
	if share := a.clusters[cluster]; share != nil && len(share.agents) >= maxAgents {
		a.refused("sessions")
		return fmt.Errorf("cluster %q has %d agents already, the most that one may have; stop some, or wait a minute for those that are gone", cluster, maxAgents)
	}
	return nil
}

// shareOf is the share of a new agent of a cluster; mu is held.
func (a *agentRegistry) shareOf(cluster string) *clusterShare {
	share := a.clusters[cluster]
	if share == nil {
		share = &clusterShare{maxDials: int64(a.config.MaxPending), agents: map[*connectedAgent]struct{}{}}
		a.clusters[cluster] = share
	}
	return share
}

// leave takes a control session away. With the last one the agent is out of routing, and what
// is open on its carriers goes on. After one that had become a carrier the agent is waited
// for: it is dialing the next one since then.
func (a *agentRegistry) leave(agent *connectedAgent, c control) {
	if !agent.forgetControl(c) {
		return
	}
	if c.carries() {
		time.AfterFunc(agentapi.AwaitSession, func() {
			if agent.awaited() >= agentapi.AwaitSession { // or it came, and was lost again since
				a.remove(agent, c.link())
			}
		})
		return
	}
	a.remove(agent, c.link())
}

// remove takes an agent without control sessions out of routing.
func (a *agentRegistry) remove(agent *connectedAgent, last *agentLink) {
	a.mu.Lock()
	defer a.mu.Unlock()
	agent.mu.Lock()
	none := len(agent.controls) == 0
	agent.mu.Unlock()
	if !none || a.agents[agent.key] != agent {
		return
	}
	a.gone(agent.key, last.draining.Load())
	delete(a.agents, agent.key)
	if a.names[agent.key.agentID] == agent.key.cluster {
		delete(a.names, agent.key.agentID)
	}
	var gone []string
	for _, host := range agent.hosts {
		delete(a.hosts[host], agent)
		if len(a.hosts[host]) == 0 {
			delete(a.hosts, host)
			gone = append(gone, host)
		}
	}
	a.tellFollowers(gone, false)
	delete(agent.share.agents, agent)
	if len(agent.share.agents) == 0 {
		delete(a.clusters, agent.key.cluster)
	}
	agent.alive.Forget()
	go func() {
		_ = agent.pool.Drain(context.Background())
		_ = agent.pool.Close()
	}()
}

// tellFollowers notes what has changed; mu is held.
func (a *agentRegistry) tellFollowers(hosts []string, present bool) {
	for f := range a.followers {
		f.note(hosts, present)
	}
}

// drain tells every agent that this server is about to
// stop, and how long it waits for them, and will tell those that come later.
func (a *agentRegistry) drain(wait time.Duration) {
	notice := int(wait / time.Second)
	a.mu.Lock()
	a.draining, a.notice = true, notice
	a.tellFollowers(nil, false)
	a.mu.Unlock()
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, agent := range a.agents {
		agent.tell(agentapi.Draining, notice)
	}
}

// greet tells an agent by a new control session what is the case, of which it may have missed
// something when it had none, before the session becomes a carrier.
func (a *agentRegistry) greet(agent *connectedAgent, c control) {
	a.mu.RLock()
	draining, notice := a.draining, a.notice
	a.mu.RUnlock()
	if draining {
		c.tell(agentapi.Draining, notice)
	}
	agent.alive.Heard()
	if n := agent.missed(); n > 0 {
		c.tell(agentapi.MoreCarriers, n)
	}
}

// supply takes over a carrier within the limits. With an error it is not taken.
func (a *agentRegistry) supply(agent *connectedAgent, c *carrier.Carrier) error {
	agent.share.taking.Lock()
	defer agent.share.taking.Unlock()
	if err := a.checkCarriers(agent); err != nil {
		return err
	}
	agent.alive.Heard()
	return agent.pool.Add(c)
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

// end ends the control sessions on carriers, which are told why, and closes the other carriers:
// those that sessions have become, too.
func (a *agentRegistry) end() {
	a.mu.RLock()
	agents := slices.Collect(maps.Values(a.agents))
	a.mu.RUnlock()
	for _, agent := range agents {
		agent.mu.Lock()
		controls := slices.Clone(agent.controls)
		agent.mu.Unlock()
		for _, c := range controls {
			c.end()
		}
		_ = agent.pool.Close()
	}
}

// tellCount tells the agents how many proxy servers there are.
func (a *agentRegistry) tellCount(n int) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, agent := range a.agents {
		agent.tell(agentapi.ServerCount, n)
	}
}

// staying counts the agents that have not said that they have
// another server.
func (a *agentRegistry) staying() (n int) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, agent := range a.agents {
		if !agent.draining() {
			n++
		}
	}
	return n
}

// add takes over a carrier of a session.
func (a *agentRegistry) add(key agentKey, c *carrier.Carrier) error {
	a.mu.RLock()
	agent, other := a.agents[key], a.names[key.agentID]
	a.mu.RUnlock()
	if agent == nil {
		if other != "" {
			a.sameName(key, other)
		}
		// The agent may believe that it has a session that was lost without a word.
		err := &carrier.Error{Code: carrier.NoAgent, Message: "no such session"}
		c.Abort(err)
		return err
	}
	err := a.supply(agent, c)
	if err != nil {
		c.Abort(err)
	}
	return err
}

// count returns how many agents there are.
func (a *agentRegistry) count() int {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return len(a.agents)
}

// countByCluster is how many agents each cluster has that has any.
func (a *agentRegistry) countByCluster() map[string]int {
	a.mu.RLock()
	defer a.mu.RUnlock()
	agents := make(map[string]int, len(a.clusters))
	for cluster, share := range a.clusters {
		if n := len(share.agents); n > 0 {
			agents[cluster] = n
		}
	}
	return agents
}

// stats adds the carriers of all agents up.
func (a *agentRegistry) stats() (sum pool.Stats) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, agent := range a.agents {
		one := agent.pool.Stats()
		sum.Idle, sum.InUse, sum.Pending = sum.Idle+one.Idle, sum.InUse+one.InUse, sum.Pending+one.Pending
	}
	return sum
}

// agentHosts are the hosts that lead to an agent. They have been checked against its
// certificate.
func agentHosts(link *agentLink) []string {
	identifiers, err := header.GenAgentIdentifiers(link.identifiers)
	if err != nil {
		return nil
	}
	return slices.Concat(identifiers.Host, identifiers.IPv4, identifiers.IPv6)
}
