package proxyserver

import (
	"context"
	"crypto/tls"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/handshakes"
)

// agentMessages is how many messages an agent may send on a control carrier within a
// minute. It pings and answers pings, a few times a minute, and says once that it leaves.
const agentMessages = 60

// controlCarrier is the control session of an agent, on a carrier of its own.
type controlCarrier struct {
	agentLink
	session *carrier.Session
}

// tell is part of control; whether the message arrives shows elsewhere.
func (c *controlCarrier) tell(what carrier.ControlKind, n int) bool {
	return c.session.Send(agentapi.ControlMessage(what, n)) == nil || !c.session.Carries()
}

// carries is part of control.
func (c *controlCarrier) carries() bool { return c.session.Carries() }

// end is part of control.
func (c *controlCarrier) end() {
	c.session.Abort(&carrier.Error{Code: carrier.Draining, Message: "the proxy server ended this session: it is about to stop, or the agent has too many"})
}

// takeControlCarrier makes a control session of a connection whose HELLO asks for one. The
// agent's next connection may be opened on it.
func (s *Server) takeControlCarrier(ctx context.Context, conn *tls.Conn, hello carrier.Hello) {
	if !agentapi.MeantFor(hello.Features, s.options.ServerID) {
		carrier.Refuse(conn, &carrier.Error{Code: carrier.NoAgent, Message: "this is another proxy server"})
		return
	}
	c := &controlCarrier{agentLink: agentLink{
		source: handshakes.SourceOf(conn.RemoteAddr()), peer: conn.RemoteAddr().String(),
		started: time.Now(),
	}}
	says := declaration{ids: []string{hello.Session}, identifiers: []string{hello.Identifiers}, process: agentapi.ProcessOf(hello.Features)}
	if err := s.admitAgent(&c.agentLink, conn, says); err != nil {
		carrier.Refuse(conn, &carrier.Error{Code: carrier.Denied, Message: err.Error()})
		return
	}
	c.session = carrier.AcceptSession(conn, hello, carrier.SessionConfig{PingAfter: s.options.KeepaliveTime, PingTimeout: keepaliveTimeout, Most: agentMessages,
		Carrier: s.agentCarriers()})
	// The agent dials carriers as soon as it has the answer, so its session is known before.
	agent, leave, err := s.joinAgent(c)
	if err != nil {
		carrier.Refuse(conn, &carrier.Error{Code: carrier.Overloaded, Message: err.Error()})
		return
	}
	if err := c.session.Answer(ctx, carrier.Hello{Session: s.options.ServerID, Servers: uint64(s.servers.get())}); err != nil {
		leave()
		return
	}
	s.registry.greet(agent, c)
	c.session.Start(func(m carrier.Control) {
		if m.Kind == agentapi.AgentLeaves {
			c.draining.Store(true)
		}
	}, func(error) { leave() })
	if c.session.Opens() {
		s.conns.carries(conn, c.session.Carrier())
		_ = s.registry.supply(agent, c.session.Carrier()) // at its limit the agent has the session alone
	}
}
