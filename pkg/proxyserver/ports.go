package proxyserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/handshakes"
	"open-cluster-management.io/cluster-proxy/pkg/health"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
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

// muxListener makes the TLS handshakes of a port and hands each connection to the
// protocol that ALPN selected. Package handshakes bounds the handshakes and says
// which comes next, so that a thousand agents that reconnect together leave the
// processor to live traffic.
type muxListener struct {
	inner     net.Listener
	config    *tls.Config
	protocols map[string]func(*tls.Conn) // by ALPN, "" for none
	queues    []*connect.Queue           // of what others accept
	source    *pki.Reloader
	agents    bool // it is the agents' port
	conns     *peerConns
	limits    *Limits
	metrics   *serverMetrics
	logger    klog.Logger
	shaking   *handshakes.Port
	closing   sync.Once

	sayFailure rate.Sometimes
}

// newMuxListener makes a listener of the certificates in source, which gives carriers to a
// function. It must be served with serve.
func newMuxListener(listener net.Listener, source *pki.Reloader, s *Server, rest int, carriers func(*tls.Conn)) *muxListener {
	config := source.ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{carrier.ALPN}
	return &muxListener{
		inner: listener, config: config, protocols: map[string]func(*tls.Conn){carrier.ALPN: carriers}, source: source, agents: source == s.agentSource,
		conns: s.conns, limits: &s.options.Limits, metrics: s.metrics, logger: s.logger,
		shaking: handshakes.New(handshakes.Options{Config: config, Limit: s.options.MaxHandshakes, Rest: rest, Timeout: s.options.HandshakeTimeout,
			Dropped: func(reason string) { s.metrics.handshakesDropped.WithLabelValues(reason).Inc() }}),
		sayFailure: rate.Sometimes{First: 10, Interval: 200 * time.Millisecond},
	}
}

// speak returns a listener of the connections that speak a protocol, which is preferred to
// those that are added later, and of those that name none if others does. It must be called
// before serve.
func (m *muxListener) speak(protocol string, others bool) net.Listener {
	queue := connect.NewQueue(m.inner.Addr())
	m.queues = append(m.queues, queue)
	m.config.NextProtos = append(m.config.NextProtos, protocol)
	hand := func(conn *tls.Conn) {
		if !queue.Hand(conn) {
			_ = conn.Close()
		}
	}
	m.protocols[protocol] = hand
	if others {
		m.protocols[""] = hand
	}
	return spoken{queue, m}
}

// spoken closes the whole port: its server drains.
type spoken struct {
	*connect.Queue
	mux *muxListener
}

// Close is part of net.Listener.
func (s spoken) Close() error { return s.mux.Close() }

// serve accepts until the listener is closed.
func (m *muxListener) serve() {
	handshakes.Accept(m.inner, m.logger, func(conn net.Conn) {
		m.handshake(dial.TCP{KeepAlive: m.limits.TCPKeepAlive, UserTimeout: m.limits.TCPUserTimeout}.Tune(conn))
	})
}

func (m *muxListener) handshake(raw net.Conn) {
	conn, err := m.shaking.Handshake(raw, func(conn *tls.Conn) func() { return m.conns.add(conn, raw, m.source, m.agents) })
	switch {
	case err != nil:
		m.metrics.handshakes.WithLabelValues("failed").Inc()
		m.noteFailure(raw.RemoteAddr(), err)
		return
	case conn.ConnectionState().DidResume:
		m.metrics.handshakes.WithLabelValues("resumed").Inc()
	default:
		m.metrics.handshakes.WithLabelValues("full").Inc()
	}
	if serve := m.protocols[conn.ConnectionState().NegotiatedProtocol]; serve != nil {
		serve(conn)
		return
	}
	_ = conn.Close()
}

// noteFailure logs why a handshake failed if certificates are the reason. Other
// failures are port scans and connections that were cut. Anyone can cause many, so at
// most a few a second are logged.
func (m *muxListener) noteFailure(peer net.Addr, err error) {
	reason := pki.HandshakeReason(err)
	m.metrics.tlsFailures.WithLabelValues(reason).Inc()
	if reason == pki.ReasonClosed || reason == pki.ReasonOther {
		return
	}
	m.sayFailure.Do(func() {
		m.logger.Info("TLS handshake failed", "reason", reason, "message", m.explain(err).Error(), "peer", peer.String())
	})
}

// explain adds to an error what it means. An agent of OCM's own cluster-proxy has a
// certificate, but of another CA, and crypto/tls sends none that the server did not ask
// for.
func (m *muxListener) explain(err error) error {
	err = pki.Explain(err)
	if m.agents && pki.NoCertificate(err) {
		return fmt.Errorf("%w of the agent CA: if it is an agent, an agent of an older release, which is replaced as soon as its cluster has a certificate of this one", err)
	}
	return err
}

// Close takes no new connections.
func (m *muxListener) Close() error {
	m.closing.Do(func() {
		_ = m.inner.Close()
		for _, queue := range m.queues {
			_ = queue.Close()
		}
		m.shaking.Close()
	})
	return nil
}
