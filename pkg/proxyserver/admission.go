package proxyserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/handshakes"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// maxAgentID bounds what an agent can make us keep and log.
const maxAgentID = 256

// declaration is what an agent says about itself. One of konnectivity's may repeat what
// must be there once.
type declaration struct {
	ids, identifiers []string
	process          string // see agentapi.ProcessHeader
}

// admitAgent decides whose agent has made a connection. It takes the
// cluster from the certificate, and compares what the agent declares with it.
func (s *Server) admitAgent(link *agentLink, conn *tls.Conn, says declaration) error {
	reason, err := s.checkAgent(link, conn, says)
	if err != nil {
		s.metrics.agentsRejected.WithLabelValues(reason).Inc()
		s.logger.Info("Agent rejected", "cluster", link.cluster, "reason", reason, "message", err.Error(), "peer", link.peer)
	}
	return err
}

func (s *Server) checkAgent(link *agentLink, conn *tls.Conn, says declaration) (reason string, err error) {
	proven, err := pki.PeerAgent(conn.ConnectionState())
	if err != nil {
		return "certificate", fmt.Errorf("reading the agent's certificate: %w", err)
	}
	link.cluster = proven.Cluster
	if err := s.conns.admit(proven); err != nil {
		return endedCluster, err
	}
	s.conns.belongs(conn, says.process)
	if len(says.ids) != 1 || len(says.ids[0]) == 0 || len(says.ids[0]) > maxAgentID {
		return "metadata", fmt.Errorf("one agent ID of 1 to %d bytes is needed", maxAgentID)
	}
	if len(says.identifiers) != 1 {
		return "metadata", fmt.Errorf("one set of agent identifiers is needed, not %d", len(says.identifiers))
	}
	if err := identity.CheckIdentifiers(says.identifiers[0], link.cluster, s.options.AgentInstallNamespace); err != nil {
		return "identifiers", err
	}
	link.agentID, link.identifiers = says.ids[0], says.identifiers[0]
	return "", nil
}

// joinAgent makes an agent known that was admitted, unless its cluster has too many.
// leave must be called when the control session has ended, or the carrier that it became.
func (s *Server) joinAgent(c control) (agent *connectedAgent, leave func(), err error) {
	link := c.link()
	agent, fresh, err := s.registry.join(c, agentHosts(link))
	if err != nil {
		s.sayLimit.Do(func() {
			s.logger.Info("Agent refused", "cluster", link.cluster, "message", err.Error(), "peer", link.peer)
		})
		return nil, nil, err
	}
	if fresh {
		s.logger.Info("Agent connected", "cluster", link.cluster, "agentID", link.agentID, "peer", link.peer)
	}
	return agent, func() { s.registry.leave(agent, c) }, nil
}

func (s *Server) noteGone(agent agentKey, draining bool) {
	s.logger.Info("Agent disconnected", "cluster", agent.cluster, "agentID", agent.agentID, "draining", draining)
}

// noteSameName tells operators of two clusters whose agents go by one ID. Agents
// make theirs by chance or from their pod's UID, so it is a mistake in how one
// was copied, or an attempt to get at the other's connections, which fails: what
// an agent is asked for follows from its certificate.
func (s *Server) noteSameName(agent agentKey, other string) {
	s.metrics.sameName.Inc()
	s.logger.Info("Agents of two clusters use the same ID", "cluster", agent.cluster, "other", other, "agentID", agent.agentID)
}

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
	c.session = carrier.AcceptSession(conn, hello, carrier.SessionConfig{PingAfter: s.options.KeepaliveTime, Most: agentMessages,
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

// agentCarriers configures the carriers that agents dial.
func (s *Server) agentCarriers() *carrier.Config {
	return &carrier.Config{Role: carrier.Opener, Name: s.options.ServerID, Relays: true}
}

// admitClient reports why a client is refused: its certificate has no role, or its CA is not
// trusted any more. Certificates of an older cluster-proxy had the first SAN as common name, and
// no role. The addon manager issues that Secret again under its old name, so that clients that
// mount it get a role without a change.
func (s *Server) admitClient(conn *tls.Conn) error {
	state := conn.ConnectionState()
	_, err := pki.PeerRole(state)
	if err == nil {
		err = s.stillTrusted(state)
	}
	if err != nil {
		s.metrics.clientsRejected.WithLabelValues("role").Inc()
		s.logger.Info("Client rejected", "reason", "role", "message", err.Error(), "peer", conn.RemoteAddr().String())
	}
	return err
}

// stillTrusted refuses new work of a client whose CA has left the bundle since its
// handshake.
func (s *Server) stillTrusted(state tls.ConnectionState) error {
	certificate, err := pki.PeerCertificate(state)
	if err != nil {
		return err
	}
	return s.clientSource.Recheck(certificate, s.conns.now())
}

// caller is a client of the client port.
type caller struct {
	role identity.Role
	peer string
}

// callerOn is the client of a connection.
func callerOn(transport net.Conn) caller {
	c := caller{peer: transport.RemoteAddr().String()}
	if secure, ok := transport.(*tls.Conn); ok {
		if role, err := pki.PeerRole(secure.ConnectionState()); err == nil {
			c.role = role
		}
	}
	return c
}

// beginConnection returns what to call when a connection to target has ended, with
// the bytes that the client sent and received, or -1. It logs who reached what: for
// clients that reach clusters directly, nothing else records that. The requests of
// the proxy API are in its audit log, and connections of a peer in the peer's own
// log, so those are logged at verbosity 1 only.
func (s *Server) beginConnection(who caller, target string) (ended func(sent, received int64)) {
	logger := s.logger
	if who.role == identity.RoleProxyAPI || who.role == identity.RolePeer {
		logger = logger.V(1)
	}
	if !logger.Enabled() {
		return func(int64, int64) {}
	}
	began := time.Now()
	cluster := s.registry.clusterOf(target)
	return func(sent, received int64) {
		logger.Info("Connection ended", "role", string(who.role), "peer", who.peer, "cluster", cluster, "target", target,
			"sent", sent, "received", received, "duration", time.Since(began).Round(time.Millisecond).String())
	}
}
