package proxyserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyserver/konnectivity"
)

// takeAgentCarrier makes a carrier, or a control session, of a connection that an agent
// dialed.
func (s *Server) takeAgentCarrier(conn *tls.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), s.options.HandshakeTimeout)
	defer cancel()
	hello, err := carrier.ReadHello(ctx, conn)
	if err != nil {
		return
	}
	if slices.Contains(hello.Features, carrier.FeatureControl) {
		s.takeControlCarrier(ctx, conn, hello)
		return
	}
	key := agentKey{agentID: hello.Session}
	if key.cluster, err = s.admitCarrier(conn); err != nil {
		_ = conn.Close()
		return
	}
	c, err := carrier.Answer(ctx, conn, *s.agentCarriers())
	if err != nil {
		return
	}
	s.conns.carries(conn, c)
	s.conns.belongs(conn, agentapi.ProcessOf(hello.Features))
	if err := s.registry.add(key, c); err != nil {
		s.logger.V(1).Info("Carrier refused", "cluster", key.cluster, "message", err.Error())
	}
}

// admitCarrier takes the cluster of a carrier from its certificate.
func (s *Server) admitCarrier(conn *tls.Conn) (cluster string, err error) {
	agent, err := pki.PeerAgent(conn.ConnectionState())
	if err != nil {
		s.metrics.agentsRejected.WithLabelValues("certificate").Inc()
		s.logger.Info("Carrier rejected", "reason", "certificate", "message", err.Error(), "peer", conn.RemoteAddr().String())
		return "", err
	}
	if err := s.conns.admit(agent); err != nil {
		s.metrics.agentsRejected.WithLabelValues(endedCluster).Inc()
		s.logger.V(1).Info("Carrier rejected", "reason", endedCluster, "message", err.Error(), "peer", conn.RemoteAddr().String())
		return "", err
	}
	return agent.Cluster, nil
}

// takeClientCarrier makes a carrier of a connection that a client dialed.
func (s *Server) takeClientCarrier(conn *tls.Conn) {
	if err := s.admitClient(conn); err != nil {
		_ = conn.Close()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.options.HandshakeTimeout)
	defer cancel()
	c, _, err := carrier.Accepted(ctx, conn, carrier.Config{
		Role: carrier.Acceptor, Handler: carrier.HandlerFunc(s.serveOpen), Name: s.options.ServerID})
	if err != nil {
		return
	}
	s.conns.carries(conn, c)
	if err := s.clientCarriers.Add(c); err != nil {
		s.logger.V(1).Info("Client's carrier refused", "message", err.Error())
	}
}

// dialPeer makes a carrier to the client port of another proxy server.
func (s *Server) dialPeer(ctx context.Context, address, serverName string) (*carrier.Carrier, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.HandshakeTimeout)
	defer cancel()
	if s.options.PeerServerName != "" {
		serverName = s.options.PeerServerName
	}
	config := s.clientSource.ClientConfig(serverName)
	config.NextProtos = []string{carrier.ALPN}
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	raw = dial.TCP{KeepAlive: s.options.TCPKeepAlive, UserTimeout: s.options.TCPUserTimeout}.Tune(raw)
	hello := carrier.Hello{Session: s.options.ServerID}
	made, err := carrier.DialTLS(ctx, raw, config, hello, carrier.Config{Role: carrier.Opener, Relays: true})
	if err != nil {
		return nil, fmt.Errorf("dialing peer %q: %w", address, err)
	}
	return made, nil
}

// open opens a connection on a carrier: an agent's, or a peer's that has one.
func (s *Server) open(ctx context.Context, request carrier.OpenRequest) (*carrier.Conn, error) {
	if err := s.memory.Err(); err != nil {
		return nil, &carrier.Error{Code: carrier.Overloaded, Message: err.Error()}
	}
	began := time.Now()
	request.Timeout = s.options.DialTimeout
	if deadline, ok := ctx.Deadline(); ok {
		request.Timeout = time.Until(deadline)
	}
	r := &route{server: s, request: request}
	conn, err := hedge(ctx, r.next)
	s.observeDial(time.Since(began), r.via.Load(), err)
	if carrier.CodeOf(err) == carrier.Draining {
		// An agent or a peer ends. The dialer would take it for this server, and try others.
		err = errNoAgent
	}
	return conn, err
}

// route is the order in which agents and peers are asked for one dial: the agents here that
// answer, the least used first, then the peers, and at last the agents here that do not
// answer at the moment, or may not dial any more. An agent here that is about to stop, and
// would cut the connection then, comes after peers that say that they have one. Peers that
// had none are asked again as long as the dial waits for an agent.
type route struct {
	server  *Server
	request carrier.OpenRequest
	tried   []*connectedAgent
	peers   lastAsked
	via     atomic.Uint64 // hops of the connection, or of the last refusal
	full    atomic.Bool   // an agent takes no more connections: only others here are asked
}

// next is what hedge tries next.
func (r *route) next() attempt {
	agent := r.server.registry.choose(r.request.Address, r.tried, answering)
	full, peers := r.full.Load(), r.server.peers
	if peers != nil && !full && r.request.Hops == 0 && (agent == nil || agent.draining() && peers.have(r.request.Address)) && r.peers.begin() {
		return r.throughPeers
	}
	if agent != nil {
		return r.through(agent)
	}
	if full {
		return nil
	}
	if agent := r.server.registry.choose(r.request.Address, r.tried, suspects); agent != nil {
		return r.through(agent)
	}
	return nil
}

func (r *route) through(agent *connectedAgent) attempt {
	r.tried = append(r.tried, agent)
	return func(ctx context.Context, silent func()) (*carrier.Conn, error) {
		conn, err := agent.open(ctx, r.request, silent)
		switch {
		case err == nil:
			r.via.Store(r.request.Hops)
		case err == errTooManyDials: // all agents of the cluster have that limit together
		case carrier.CodeOf(err) == carrier.Overloaded:
			r.full.Store(true)
			err = fullAgent{err}
		}
		return conn, err
	}
}

func (r *route) throughPeers(ctx context.Context, silent func()) (*carrier.Conn, error) {
	defer r.peers.end()
	request := r.request
	request.Hops++
	r.via.Store(request.Hops)
	return r.server.peers.open(ctx, request, silent)
}

func (s *Server) observeDial(elapsed time.Duration, hops uint64, err error) {
	via := "agent"
	if hops > 0 {
		via = "peer"
	}
	result := "ok"
	if code := carrier.CodeOf(err); code != 0 {
		result = code.String()
	}
	konnectivity.ObserveDial(elapsed, err)
	s.metrics.dials.WithLabelValues(via, result).Inc()
}

// serveOpen answers a client's request for a connection. Frames go from one
// carrier to the other as they come.
func (s *Server) serveOpen(ctx context.Context, request *carrier.Pending) {
	if request.Network == networkDirectory {
		if callerOn(request.Carrier().Transport()).role != identity.RolePeer { // which clusters there are is for peers alone
			_ = request.Refuse(&carrier.Error{Code: carrier.Denied, Message: "only proxy servers may ask which clusters have agents here"})
			return
		}
		s.registry.serveDirectory(request, s.untold)
		return
	}
	if request.Timeout == 0 || request.Timeout > s.options.DialTimeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.options.DialTimeout)
		defer cancel()
	}
	conn, err := s.open(ctx, request.OpenRequest)
	if err != nil {
		_ = request.Refuse(err)
		return
	}
	accepted, err := request.Accept(carrier.Endpoints{Local: conn.LocalAddr().String(), Remote: conn.RemoteAddr().String()})
	if err != nil {
		conn.Abort(err)
		return
	}
	ended := s.beginConnection(callerOn(request.Carrier().Transport()), request.Address)
	carrier.Splice(accepted, conn, ended)
}
