package proxyserver

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
)

const (
	// moveEvery is how often a server looks whether it has more than its share of the
	// agents, and moveRate how many agents all servers together ask in that time: each
	// one that moves costs some ten handshakes, spread over all servers.
	moveEvery = time.Second
	moveRate  = 10
	// moveOver is how many times its share a server has without asking agents to move.
	// Chance alone makes a few in a hundred of thousands of agents.
	moveOver = 1.05
	// moveAgain is how long an agent that was asked counts as one that goes, which is longer
	// than it looks for another server. Then it has found none, and may be asked again.
	moveAgain = 10 * time.Minute
)

// runMoves asks agents to move to other servers while this one has more than its share.
func (s *Server) runMoves(ctx context.Context) error {
	tick := time.NewTicker(moveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !s.health.Draining() {
			s.metrics.moves.Add(float64(s.registry.askToMove(s.servers.get(), s.peers.share)))
		}
	}
}

// surplus is how many of own agents should move now, if so many of them are going
// already, where each of so many servers would have mean agents.
func surplus(own, going int, mean float64, servers int) int {
	if servers < 2 || float64(own-going) <= mean*moveOver+1 {
		return 0
	}
	return min(own-going-int(math.Ceil(mean)), max(moveRate/servers, 1))
}

// askToMove asks agents to move, but those that connect to all of so many servers, and
// returns how many.
func (a *agentRegistry) askToMove(count int, share func(own int) (mean float64, servers int)) (asked int) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	mean, servers := share(a.movable)
	if surplus(a.movable, 0, mean, servers) == 0 {
		return 0
	}
	var stays []*agentSession
	going := 0
	for _, agent := range a.sessions {
		switch {
		case !agent.moves || agentapi.WantedServers(count, agent.perAgent) >= count:
		case agent.draining() || agent.askedToMove():
			going++
		case !agent.isListening():
		default:
			stays = append(stays, agent)
		}
	}
	n := min(surplus(a.movable, going, mean, servers), len(stays))
	for i := range n {
		chosen := i + rand.IntN(len(stays)-i)
		stays[i], stays[chosen] = stays[chosen], stays[i]
		stays[i].askToMove(count)
	}
	return n
}

func (agent *agentSession) askedToMove() bool {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	return !agent.askedAt.IsZero() && time.Since(agent.askedAt) < moveAgain
}

// askToMove says how many servers there are, since the agent may know less.
func (agent *agentSession) askToMove(count int) {
	agent.mu.Lock()
	agent.askedAt = time.Now()
	agent.mu.Unlock()
	agent.tell(agentapi.Move, count)
}

// peerStops tells agents that a peer is about to stop: connections may come through it
// and end with it, and an agent need not be connected to it.
func (a *agentRegistry) peerStops(name string) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, agent := range a.sessions {
		agent.tellPeerStops(name)
	}
}

func (agent *agentSession) tellPeerStops(name string) {
	if agent.moves {
		agent.tell(agentapi.PeerDraining, agentapi.NumberOf(name))
	}
}
