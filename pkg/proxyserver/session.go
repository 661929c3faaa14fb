package proxyserver

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
)

// stableAfter is the age from which a second control session of one agent is taken for its
// reconnection. Until then it may be the probe by which an agent looks for
// further servers, and closes at once when it finds that it knows this one.
const stableAfter = 5 * time.Second

// agentSession is one agent. It lives as long as any of its control sessions: an agent
// that looks for further servers, or comes back before its old session was found dead,
// has two for a while.
type agentSession struct {
	key   sessionKey
	hosts []string
	pool  *pool.Pool
	alive *liveness
	share *clusterShare
	// moves says that the agent can be asked to move to another server, and perAgent to
	// how many it was told to connect.
	moves    bool
	perAgent int
	// forget ends the goroutines of the session.
	forget context.CancelFunc

	mu       sync.Mutex
	controls []control
	speaks   bool      // it has dialed a carrier at least once
	askedAt  time.Time // to move
}

// sources are where the agent's control sessions come from, and its carriers most likely.
func (agent *agentSession) sources() (all []netip.Prefix) {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	for _, c := range agent.controls {
		if source := c.link().source; !slices.Contains(all, source) {
			all = append(all, source)
		}
	}
	return all
}

// tell sends a message by the agent's newest stable control session, or else its oldest.
func (agent *agentSession) tell(what client.PacketType, n int) {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	var chosen control
	for _, c := range agent.controls {
		if chosen == nil || time.Since(c.link().started) >= stableAfter {
			chosen = c
		}
	}
	if chosen != nil {
		go chosen.tell(what, n)
	}
}

// hasCarriers is also true for a new agent that announces carriers: dials then wait for
// the first one. If none comes, an agent with a stream is served like konnectivity's.
func (agent *agentSession) hasCarriers() bool {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	return agent.speaks || slices.ContainsFunc(agent.controls, func(c control) bool {
		link := c.link()
		return link.noStream || link.announced && time.Since(link.started) < stableAfter
	})
}

// open is an attempt.
func (agent *agentSession) open(ctx context.Context, request carrier.OpenRequest, silent func()) (*carrier.Conn, error) {
	if !agent.share.begin() {
		return nil, errTooManyDials
	}
	defer agent.share.end()
	stop := agent.alive.awaitAnswer(silent)
	defer stop()
	conn, err := agent.pool.Open(ctx, request)
	if carrier.Answered(err) {
		agent.alive.heard()
	}
	return conn, err
}

func (agent *agentSession) draining() bool {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	return slices.ContainsFunc(agent.controls, func(c control) bool { return c.link().draining.Load() })
}
