package proxyserver

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// moreCarriers is the type of the packet by which an agent is asked for
// carriers; the number is in its connection ID. It is no type of konnectivity's,
// and is sent only to agents that have dialed a carrier.
const moreCarriers = client.PacketType(64)

// carrierAgents are the agents that dial carriers. An agent joins with its
// konnectivity stream, which is its control session: what it may be called is
// decided there, and carriers say only which session they belong to.
type carrierAgents struct {
	mu       sync.RWMutex
	sessions map[sessionKey]*carrierAgent
	hosts    map[string][]*carrierAgent
}

// sessionKey is an agent: its cluster, if that is proven, and what it calls
// itself. Both are compared, so an agent can only add to its own session.
type sessionKey struct{ cluster, agentID string }

// carrierAgent is the session of one agent. It lives as long as any of its
// streams: an agent that looks for further servers, or comes back before its
// old stream was found dead, has two for a while.
type carrierAgent struct {
	key   sessionKey
	hosts []string
	pool  *carrier.Pool

	mu      sync.Mutex
	streams []*agentStream
	speaks  bool // it has dialed a carrier at least once
}

func newCarrierAgents() *carrierAgents {
	return &carrierAgents{sessions: map[sessionKey]*carrierAgent{}, hosts: map[string][]*carrierAgent{}}
}

// join adds an agent by its stream. The function it returns takes the stream
// away; with the last one the agent is out of routing, and what is open on its
// carriers goes on.
func (a *carrierAgents) join(stream *agentStream, hosts []string) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := sessionKey{stream.cluster, stream.agentID}
	agent := a.sessions[key]
	if agent == nil {
		agent = &carrierAgent{key: key, hosts: hosts}
		agent.pool = carrier.NewPool(carrier.PoolConfig{More: agent.more})
		a.sessions[key] = agent
		for _, host := range hosts {
			a.hosts[host] = append(a.hosts[host], agent)
		}
	}
	agent.mu.Lock()
	agent.streams = append(agent.streams, stream)
	agent.mu.Unlock()
	return func() { a.leave(agent, stream) }
}

func (a *carrierAgents) leave(agent *carrierAgent, stream *agentStream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	agent.mu.Lock()
	agent.streams = slices.DeleteFunc(agent.streams, func(s *agentStream) bool { return s == stream })
	last := len(agent.streams) == 0
	agent.mu.Unlock()
	if !last {
		return
	}
	delete(a.sessions, agent.key)
	for _, host := range agent.hosts {
		a.hosts[host] = slices.DeleteFunc(a.hosts[host], func(other *carrierAgent) bool { return other == agent })
		if len(a.hosts[host]) == 0 {
			delete(a.hosts, host)
		}
	}
	go func() {
		_ = agent.pool.Drain(context.Background())
		_ = agent.pool.Close()
	}()
}

// more asks the agent for n carriers, by its newest stream.
func (agent *carrierAgent) more(n int) {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	if len(agent.streams) > 0 {
		go agent.streams[len(agent.streams)-1].more(n)
	}
}

// add takes over a carrier of a session.
func (a *carrierAgents) add(key sessionKey, c *carrier.Carrier) error {
	a.mu.RLock()
	agent := a.sessions[key]
	a.mu.RUnlock()
	if agent == nil {
		_ = c.Close()
		return &carrier.Error{Code: carrier.NoAgent, Message: "no such session"}
	}
	agent.mu.Lock()
	first := !agent.speaks
	agent.speaks = true
	agent.mu.Unlock()
	err := agent.pool.Add(c)
	if first {
		agent.pool.Start()
	}
	return err
}

// open opens a connection through the least used agent of a host. ok is false
// if no agent of that host has carriers.
func (a *carrierAgents) open(ctx context.Context, request carrier.OpenRequest) (conn *carrier.Conn, ok bool, err error) {
	agent := a.choose(request.Address)
	if agent == nil {
		return nil, false, nil
	}
	conn, err = agent.pool.Open(ctx, request)
	return conn, true, err
}

// speaksFor reports whether an agent with carriers serves an address.
func (a *carrierAgents) speaksFor(address string) bool { return a.choose(address) != nil }

func (a *carrierAgents) choose(address string) *carrierAgent {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	candidates := a.hosts[host]
	if len(candidates) == 0 {
		candidates = a.hosts[anyHost]
	}
	var best *carrierAgent
	var least int
	for _, agent := range candidates {
		if !agent.hasCarriers() {
			continue
		}
		// An agent that drains is the last resort.
		used := agent.used()
		if agent.draining() {
			used += math.MaxInt / 2
		}
		if best == nil || used < least {
			best, least = agent, used
		}
	}
	return best
}

func (agent *carrierAgent) hasCarriers() bool {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	return agent.speaks
}

func (agent *carrierAgent) used() int {
	stats := agent.pool.Stats()
	return stats.InUse + stats.Pending
}

func (agent *carrierAgent) draining() bool {
	agent.mu.Lock()
	defer agent.mu.Unlock()
	return slices.ContainsFunc(agent.streams, func(s *agentStream) bool { return s.draining.Load() })
}

// anyHost stands for every host in the routing of a plain konnectivity server
// whose strategy is not the destination host.
const anyHost = "*"

// carrierHosts are the hosts that lead to an agent. In certificate mode they
// have been checked against its certificate.
func (s *Server) carrierHosts(stream *agentStream) []string {
	if s.options.AgentIdentity == IdentityDeclared && s.options.strategies() != "destHost" {
		return []string{anyHost}
	}
	identifiers, err := header.GenAgentIdentifiers(stream.identifiers)
	if err != nil {
		return nil
	}
	return slices.Concat(identifiers.Host, identifiers.IPv4, identifiers.IPv6)
}

// takeAgentCarrier makes a carrier of a connection that an agent dialed.
func (s *Server) takeAgentCarrier(conn *tls.Conn) {
	key := sessionKey{}
	if s.options.AgentIdentity == IdentityCertificate {
		cluster, err := pki.PeerAgent(conn.ConnectionState())
		if err != nil {
			s.metrics.agentsRejected.WithLabelValues("certificate").Inc()
			s.logger.Info("Carrier rejected", "reason", "certificate", "error", err.Error(), "peer", conn.RemoteAddr().String())
			_ = conn.Close()
			return
		}
		key.cluster = cluster
	}
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	c, hello, err := carrier.Accepted(ctx, conn, carrier.Config{Role: carrier.Opener})
	if err != nil {
		_ = conn.Close()
		return
	}
	key.agentID = hello.Session
	if err := s.carriers.add(key, c); err != nil {
		s.logger.V(1).Info("Carrier refused", "cluster", key.cluster, "error", err.Error())
	}
}

// takeClientCarrier makes a carrier of a connection that a client dialed.
func (s *Server) takeClientCarrier(conn *tls.Conn) {
	if s.checksRoles() {
		if err := s.admitClient(klog.NewContext(context.Background(), s.logger), conn.ConnectionState()); err != nil {
			_ = conn.Close()
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	c, _, err := carrier.Accepted(ctx, conn, carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(s.serveOpen)})
	if err != nil {
		_ = conn.Close()
		return
	}
	if err := s.clientCarriers.Add(c); err != nil {
		s.logger.V(1).Info("Client's carrier refused", "error", err.Error())
	}
}

// dialTimeout bounds a client's dial that does not say how long it waits.
const dialTimeout = 15 * time.Second

// serveOpen answers a client's request for a connection. Frames go from one
// carrier to the other as they come; an agent without carriers is reached
// through konnectivity's server.
func (s *Server) serveOpen(ctx context.Context, request *carrier.Pending) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, ok, err := s.carriers.open(ctx, request.OpenRequest)
	if !ok {
		s.serveOpenOverStream(ctx, request)
		return
	}
	if err != nil {
		_ = request.Refuse(err)
		return
	}
	accepted, err := request.Accept(carrier.Endpoints{Local: conn.LocalAddr().String(), Remote: conn.RemoteAddr().String()})
	if err != nil {
		conn.Abort(err)
		return
	}
	_ = carrier.Splice(accepted, conn)
}

// serveOpenOverStream reaches an agent that has no carriers. The bytes take the
// way of konnectivity's clients, within this process.
func (s *Server) serveOpenOverStream(ctx context.Context, request *carrier.Pending) {
	target, err := s.inner.dial(ctx, request.Address)
	if err != nil {
		_ = request.Refuse(err)
		return
	}
	accepted, err := request.Accept(carrier.Endpoints{Remote: request.Address})
	if err != nil {
		_ = target.Close()
		return
	}
	_ = carrier.Relay(accepted, target)
}
