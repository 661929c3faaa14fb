package proxyserver

import (
	"context"
	"fmt"
	"net"

	"open-cluster-management.io/cluster-proxy/pkg/health"
)

// agentRest is handshakes.Options' Rest on the agent port: after a handshake slot was
// held for some time, it stays unused for agentRest times as long. Users do not wait
// for most connections of agents, as there are spare ones; but a thousand agents that
// reconnect together would take the processor from live traffic for seconds.
//
// A flood that comes through the same address as the agents, a load balancer that
// replaces addresses, competes with them for first flights: such a balancer should
// keep addresses (externalTrafficPolicy: Local) or bound new connections itself.
const agentRest = 16

// ports are the listeners besides the health server's own.
type ports struct {
	client, agent, admin net.Listener
	arrivals             *health.Arrivals // of clients
	clients, agents      *muxListener     // in front of client and agent; nil before shareOut
}

func (s *Server) listen(ctx context.Context) (p *ports, err error) {
	p = &ports{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.client, err = listenTCP(ctx, "clients", address(s.options.ServerBindAddress, s.options.ServerPort)); err != nil {
		return p, err
	}
	p.arrivals = &health.Arrivals{Listener: p.client}
	p.client = p.arrivals
	if p.agent, err = listenTCP(ctx, "agents", address(s.options.AgentBindAddress, s.options.AgentPort)); err != nil {
		return p, err
	}
	p.admin, err = listenTCP(ctx, "administration", address(s.options.AdminBindAddress, s.options.AdminPort))
	return p, err
}

func (p *ports) close() {
	for _, listener := range []net.Listener{p.client, p.agent, p.admin} {
		if listener != nil {
			_ = listener.Close()
		}
	}
}

func listenTCP(ctx context.Context, what, address string) (net.Listener, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for %s on %q: %w", what, address, err)
	}
	return listener, nil
}

// shareOut puts muxes in front of the ports, and returns what serves the protocols that are
// not carriers.
func (s *Server) shareOut(p *ports) (serving []func() error) {
	p.clients = newMuxListener(p.client, s.clientSource, s, 0, s.takeClientCarrier)
	p.agents = newMuxListener(p.agent, s.agentSource, s, agentRest, s.takeAgentCarrier)
	s.registry.expect = p.agents.shaking.Expect
	streams := p.clients.speak("h2", !s.options.KonnectivityAgents)
	serving = append(serving, func() error { return s.konnectivity.ServeClients(streams) })
	if s.options.KonnectivityAgents {
		requests, backends := p.clients.speak("http/1.1", true), p.agents.speak("h2", true)
		serving = append(serving, func() error { return s.konnectivity.ServeConnect(requests) }, func() error {
			// The drain closes the listener and leaves the agents' streams alone.
			if err := s.konnectivity.ServeAgents(backends); err != nil && !s.health.Draining() {
				return fmt.Errorf("serving agents: %w", err)
			}
			return nil
		})
	}
	return serving
}
