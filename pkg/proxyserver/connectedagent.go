package proxyserver

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/liveness"
)

// control is a control session of an agent.
type control interface {
	link() *agentLink
	// tell sends the agent a message, and reports false if the session is over. It may block.
	tell(what carrier.ControlKind, n int) bool
	// end ends the session. It does not block, and the caller holds no lock: the session
	// leaves the registry.
	end()
	// carries reports whether the session has become a carrier, and takes no message.
	carries() bool
}

// agentLink is what is known of an agent by its control session.
type agentLink struct {
	// cluster is proven; agentID is what the agent calls itself.
	cluster, agentID string
	identifiers      string // as declared
	source           netip.Prefix
	peer             string // its address
	started          time.Time

	draining atomic.Bool // it asked for new dials to go elsewhere
}

func (l *agentLink) link() *agentLink { return l }

// agentKey names an agent: its cluster, which is proven, and what it calls
// itself. Both are compared, so an agent can only add to its own session.
type agentKey struct{ cluster, agentID string }

// stableAfter is the age from which a second control session of one agent is taken for its
// reconnection. Until then it may be the probe by which an agent looks for
// further servers, and closes at once when it finds that it knows this one.
const stableAfter = 5 * time.Second

// connectedAgent is one agent. It lives as long as any of its control sessions: an agent
// that looks for further servers, or comes back before its old session was found dead,
// has two for a while.
type connectedAgent struct {
	key   agentKey
	hosts []string
	pool  *pool.Pool
	alive *liveness.Peer
	share *clusterShare

	mu       sync.Mutex
	controls []control
	untold   int       // carriers that it was not asked for, since it had no control session
	lostAt   time.Time // its last control session
}

// sources are where the agent's control sessions come from, and its carriers most likely.
func (agent *connectedAgent) sources() (all []netip.Prefix) {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	for _, c := range agent.controls {
		if source := c.link().source; !slices.Contains(all, source) {
			all = append(all, source)
		}
	}
	return all
}

// tell sends a message by the agent's newest stable control session, or else its oldest. If
// it has none, because that carries a connection, greet will tell the next one.
func (agent *connectedAgent) tell(what carrier.ControlKind, n int) {
	go func() {
		for {
			if c := agent.listening(what, n); c == nil || c.tell(what, n) {
				return
			}
		}
	}()
}

// listening returns the control session for a message, or notes that there is none.
func (agent *connectedAgent) listening(what carrier.ControlKind, n int) (chosen control) {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	for _, c := range agent.controls {
		if !c.carries() && (chosen == nil || time.Since(c.link().started) >= stableAfter) {
			chosen = c
		}
	}
	if chosen == nil && what == agentapi.MoreCarriers {
		agent.untold += n
	}
	return chosen
}

// missed returns how many carriers users wait for that the agent was not asked for, besides
// the one that it has just dialed.
func (agent *connectedAgent) missed() int {
	waiting := agent.pool.Stats().Waiting
	agent.mu.Lock()
	defer agent.mu.Unlock()
	n := min(agent.untold, waiting) - 1
	agent.untold = 0
	return n
}

// listens reports whether the agent can be told something; mu is held.
func (agent *connectedAgent) listens() bool {
	return slices.ContainsFunc(agent.controls, func(c control) bool { return !c.carries() })
}

// addControl adds a control session, and returns those that listen. Of those that have become
// carriers it keeps the last one only, which suffices while the new one may be a probe: a busy
// agent has a thousand. mu is held.
func (agent *connectedAgent) addControl(c control) (listening []control) {
	var used []control
	for _, c := range agent.controls {
		if c.carries() {
			used = append(used, c)
		} else {
			listening = append(listening, c)
		}
	}
	listening = append(listening, c)
	agent.controls = slices.Concat(used[max(len(used)-1, 0):], listening)
	return listening
}

// forgetControl takes a control session away that has ended, and reports whether it was the
// last one. One that has become a carrier keeps the agent known while it has no other: until
// the next one comes, and if that is a probe, which ends at once and has not said that the
// agent leaves.
func (agent *connectedAgent) forgetControl(c control) (last bool) {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	before := len(agent.controls)
	agent.controls = slices.DeleteFunc(agent.controls, func(other control) bool { return other == c })
	if len(agent.controls) == before || agent.listens() {
		return false
	}
	if stable := !c.carries() && (c.link().draining.Load() || time.Since(c.link().started) >= stableAfter); stable {
		agent.controls = nil
	}
	agent.lostAt = time.Now()
	return len(agent.controls) == 0
}

// awaited is how long ago the agent has lost its last control session.
func (agent *connectedAgent) awaited() time.Duration {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	return time.Since(agent.lostAt)
}

// open is an attempt.
func (agent *connectedAgent) open(ctx context.Context, request carrier.OpenRequest, silent func()) (*carrier.Conn, error) {
	if !agent.share.begin() {
		return nil, errTooManyDials
	}
	defer agent.share.end()
	stop := agent.alive.AwaitAnswer(silent)
	defer stop()
	conn, err := agent.pool.Open(ctx, request)
	if carrier.Answered(err) {
		agent.alive.Heard()
	}
	return conn, err
}

// draining is what the agent said by the sessions that it has, or else had.
func (agent *connectedAgent) draining() bool {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	listens := agent.listens()
	return slices.ContainsFunc(agent.controls, func(c control) bool { return c.link().draining.Load() && !(listens && c.carries()) })
}

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
