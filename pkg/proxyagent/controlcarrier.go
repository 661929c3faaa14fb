package proxyagent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/pkg/agent"
	"sigs.k8s.io/apiserver-network-proxy/pkg/agent/metrics"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// controlCarrier is the control session with a proxy server of ours, on a carrier that the
// server's next OPEN may come on.
type controlCarrier struct {
	servers *servers
	session *carrier.Session
}

// end is part of control. The connection on a carrier that the session has become goes on.
func (c *controlCarrier) end() {
	_ = c.session.Close()
	c.servers.leave(c.serverID(), c)
}

// over is part of control.
func (c *controlCarrier) over() bool { return c.session.Over() }

// leave is part of control.
func (c *controlCarrier) leave() {
	_ = c.session.Send(agentapi.ControlMessage(agentapi.AgentLeaves, 0))
}

func (c *controlCarrier) serverID() string { return c.session.Peer().Session }

// handle acts on a message of the server.
func (c *controlCarrier) handle(m carrier.Control) {
	n := int(min(m.Number, 1<<31-1))
	switch client.PacketType(m.Kind) {
	case agentapi.MoreCarriers:
		c.servers.more(c.serverID(), n)
	case agentapi.Draining:
		c.servers.drains(c.serverID(), n)
	case agentapi.ServerCount:
		c.servers.counted(n)
	}
}

// start starts a session that has joined.
func (c *controlCarrier) start() {
	stop := context.AfterFunc(c.servers.draining, c.leave)
	c.session.Start(c.handle, func(err error) {
		stop()
		c.servers.ended(c)
		klog.Background().V(1).Info("A control session has ended", "serverID", c.serverID(), "err", err)
	})
}

// count is how many proxy servers there are, as the server said first.
func (c *controlCarrier) count() int { return int(min(c.session.Peer().Servers, 1<<31-1)) }

// controlFirst is the counter that konnectivity's agent asks before each dial. It dials
// control carriers itself, and answers when a stream is needed: that of a server that has
// no control carriers.
type controlFirst struct {
	agent.ServerCounter
	servers *servers
	// recheck is how often the number of servers is looked up while none is missing.
	recheck time.Duration
}

// Count is part of agent.ServerCounter. It returns the inner count, which waits until
// the agent may dial.
func (c controlFirst) Count() int {
	for {
		changed := c.servers.changes() // from before what is decided next
		count := c.ServerCounter.Count()
		metrics.Metrics.SetServerCount(count)
		next := c.servers.nextStep(count)
		if next == dialControl {
			next = c.servers.connect()
		}
		switch next {
		case leaveToStreams:
			return count
		case stayIdle:
			timer := time.NewTimer(c.recheck)
			select {
			case <-changed:
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// step is what an agent does next about the servers that it lacks.
type step int

const (
	dialControl    step = iota // dial a control carrier
	leaveToStreams             // konnectivity's agent dials a stream, if one is missing
	stayIdle                   // nothing is missing
)

// nextStep returns what to do if there are count servers. Streams alone are left to
// konnectivity's agent: while it has nothing but konnectivity's servers, an agent does not
// ask each time whether the next one is another.
func (s *servers) nextStep(count int) step {
	s.mu.Lock()
	defer s.mu.Unlock()
	streamsOnly := len(s.sessions) > 0
	for _, known := range s.sessions {
		streamsOnly = streamsOnly && !known.hasControlCarrier()
	}
	complete := len(s.sessions) >= count
	switch {
	case s.stopped, streamsOnly && (complete || !s.speaksCarriers()):
		return leaveToStreams
	case complete, s.draining.Err() != nil:
		return stayIdle
	}
	return dialControl
}

// hasControlCarrier is also true while the next one is dialed.
func (k *serverSession) hasControlCarrier() bool {
	return len(k.control) == 0 || slices.ContainsFunc(k.control, func(c control) bool { _, ok := c.(*controlCarrier); return ok })
}

// changes returns a channel that is closed when something changes.
func (s *servers) changes() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// connect dials a control carrier to one more server, and returns what to do then. Behind a
// load balancer it may lead to one that the agent has, and to one that takes streams only.
func (s *servers) connect() step {
	s.dialed()
	session, err := s.carriers.dialControl(context.Background())
	switch {
	case errors.Is(err, carrier.ErrNoCarriers), errors.Is(err, carrier.ErrNoControl):
		s.mu.Lock()
		s.search.misses = max(s.search.misses-1, 0) // the stream's dial counts
		s.mu.Unlock()
		return leaveToStreams
	case err != nil:
		klog.Background().Info("Connecting to a proxy server; will try again", "err", err.Error())
		return dialControl
	}
	c := &controlCarrier{servers: s, session: session}
	if s.has(c.serverID()) {
		if s.rejoinUnheard(c) {
			c.start()
		} else {
			_ = session.Close()
		}
		return dialControl
	}
	s.counted(c.count())
	s.join(c.serverID(), true, c)
	c.start()
	return dialControl
}

// renewControl makes a control session with one server in the place of one that has become a
// carrier. Another server, to which a load balancer may lead, refuses it: then it returns nil.
func (s *servers) renewControl(ctx context.Context, known *serverSession, serverID string) (*carrier.Carrier, error) {
	session, err := s.carriers.dialControl(ctx, agentapi.ServerFeature(serverID))
	switch {
	case carrier.CodeOf(err) == carrier.NoAgent, errors.Is(err, carrier.ErrNoControl), errors.Is(err, carrier.ErrNoCarriers):
		return nil, nil
	case err != nil:
		return nil, err
	case session.Peer().Session != serverID: // of an earlier release, which does not know the feature
		_ = session.Close()
		return nil, nil
	}
	c := &controlCarrier{servers: s, session: session}
	if !s.rejoin(known, c) {
		_ = session.Close()
		return nil, net.ErrClosed
	}
	if n := c.count(); n != s.Count() {
		s.counted(n)
	}
	c.start()
	return session.Carrier(), nil
}

// has reports whether there is a control session with a server, or none may be made.
func (s *servers) has(serverID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[serverID] != nil || s.stopped
}

// needsNoStream reports whether a server has a control carrier of this agent.
func (s *servers) needsNoStream(serverID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.sessions[serverID]
	return known != nil && known.hasControlCarrier()
}

// connected is how many proxy servers there are sessions with.
func (s *servers) connected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// dialControl makes a control session with any of the proxy servers, and says which features
// the agent has.
func (c *carrierDialer) dialControl(ctx context.Context, features ...string) (*carrier.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, c.handshakeTimeout)
	defer cancel()
	raw, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := carrier.ShakeHands(ctx, raw, c.tlsConfig())
	if err != nil {
		if !errors.Is(err, carrier.ErrNoCarriers) {
			c.handshakes.failed(err)
		}
		return nil, fmt.Errorf("dialing a control carrier to %q: %w", c.address, pki.Explain(err))
	}
	hello := carrier.Hello{Session: c.session, Identifiers: c.identifiers, Features: append(features, agentapi.ProcessFeature(c.process))}
	session, err := carrier.DialSession(ctx, conn, hello, carrier.SessionConfig{PingAfter: c.pingAfter, Carrier: c.carriers()})
	c.handshakes.firstRead(err)
	if err != nil {
		return nil, fmt.Errorf("asking %q for a control session: %w", c.address, pki.Explain(err))
	}
	return session, nil
}
