package konnectivity

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

const (
	// maxConnections bounds the connections of one cluster's agents, each of which has one.
	maxConnections = 64
	// maxAgentStreams bounds the gRPC streams of one of them, which has one.
	maxAgentStreams = 16
	// unanswered is how long an agent may take for a dial. Clients do not wait that
	// long, and konnectivity's server does not tell when they have gone.
	unanswered = time.Minute
)

// streamNumber makes agent IDs unique within the process.
var streamNumber atomic.Uint64

// countConnection counts a connection of a cluster's agents until it is closed, and refuses
// one too many.
func (s *Server) countConnection(conn *tls.Conn) (net.Conn, error) {
	agent, err := pki.PeerAgent(conn.ConnectionState())
	if err != nil {
		return nil, fmt.Errorf("reading the agent's certificate: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clusters[agent.Cluster] >= maxConnections {
		return nil, fmt.Errorf("cluster %q has %d connections already", agent.Cluster, maxConnections)
	}
	s.clusters[agent.Cluster]++
	return &countedConn{Conn: conn, closed: sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		decrement(s.clusters, agent.Cluster)
	})}, nil
}

type countedConn struct {
	*tls.Conn
	closed func()
}

func (c *countedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// decrement counts one less, and forgets a key of which there is none.
func decrement(counts map[string]int, key string) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// agentStream is one agent's stream. It stands between the wire and
// konnectivity's server, which sees only packets that it can handle, and answers
// of the agent that was asked.
type agentStream struct {
	grpc.ServerStream
	ctx context.Context

	sendMu sync.Mutex // gRPC allows one SendMsg at a time

	mu      sync.Mutex
	pending map[int64]time.Time // when this agent was asked for a dial ID
	cleaned time.Time
}

func newAgentStream(stream grpc.ServerStream) *agentStream {
	return &agentStream{ServerStream: stream, ctx: stream.Context(), pending: map[int64]time.Time{}, cleaned: time.Now()}
}

// Context has the stream's metadata as konnectivity's server shall see them.
func (s *agentStream) Context() context.Context { return s.ctx }

// SendMsg is part of grpc.ServerStream.
func (s *agentStream) SendMsg(m any) error {
	if packet, ok := m.(*client.Packet); ok {
		s.mu.Lock()
		switch packet.Type {
		case client.PacketType_DIAL_REQ:
			s.forgetUnanswered()
			s.pending[packet.GetDialRequest().GetRandom()] = time.Now()
		case client.PacketType_DIAL_CLS:
			delete(s.pending, packet.GetCloseDial().GetRandom())
		}
		s.mu.Unlock()
	}
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	return s.ServerStream.SendMsg(m)
}

// forgetUnanswered forgets, from time to time, dials that were not answered; mu is held.
func (s *agentStream) forgetUnanswered() {
	if time.Since(s.cleaned) < unanswered {
		return
	}
	s.cleaned = time.Now()
	maps.DeleteFunc(s.pending, func(_ int64, asked time.Time) bool { return time.Since(asked) > unanswered })
}

// RecvMsg is part of grpc.ServerStream.
func (s *agentStream) RecvMsg(m any) error {
	for {
		if err := s.ServerStream.RecvMsg(m); err != nil {
			return err
		}
		packet, ok := m.(*client.Packet)
		if !ok {
			return status.Errorf(codes.Internal, "message of type %T on an agent's stream", m)
		}
		if err := checkPayload(packet); err != nil {
			return err
		}
		if s.passes(packet) {
			return nil
		}
	}
}

// passes reports whether a packet may pass. An
// answer to a dial that this agent was not asked for may not, nor may the end of
// one: konnectivity would take it from any agent that knows the dial's number.
func (s *agentStream) passes(packet *client.Packet) bool {
	switch packet.Type {
	case client.PacketType_DIAL_RSP:
		response := packet.GetDialResponse()
		if s.forget(response.Random) {
			return true
		}
		if response.ConnectID != 0 {
			// The dial was forgotten, and its connection serves no client.
			_ = s.SendMsg(&client.Packet{Type: client.PacketType_CLOSE_REQ, Payload: &client.Packet_CloseRequest{
				CloseRequest: &client.CloseRequest{ConnectID: response.ConnectID}}})
		}
		return false
	case client.PacketType_DIAL_CLS:
		return s.forget(packet.GetCloseDial().Random)
	}
	return true
}

// forget forgets a dial, and reports whether the agent was asked for it.
func (s *agentStream) forget(random int64) (asked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, asked = s.pending[random]
	delete(s.pending, random)
	return asked
}

// checkPayload refuses what konnectivity's server cannot handle.
func checkPayload(packet *client.Packet) error {
	ok := true
	switch packet.Type {
	case client.PacketType_DIAL_REQ:
		ok = packet.GetDialRequest() != nil
	case client.PacketType_DIAL_RSP:
		ok = packet.GetDialResponse() != nil
	case client.PacketType_CLOSE_REQ:
		ok = packet.GetCloseRequest() != nil
	case client.PacketType_CLOSE_RSP:
		ok = packet.GetCloseResponse() != nil
	case client.PacketType_DATA:
		ok = packet.GetData() != nil
	case client.PacketType_DIAL_CLS:
		ok = packet.GetCloseDial() != nil
	}
	if !ok {
		return status.Errorf(codes.InvalidArgument, "packet of type %s without its payload", packet.Type)
	}
	return nil
}

// interceptAgent decides whose agent is on a stream before konnectivity's
// server sees it.
func (s *Server) interceptAgent(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	incoming, _ := metadata.FromIncomingContext(stream.Context())
	ids, identifiers := incoming.Get(header.AgentID), incoming.Get(header.AgentIdentifiers)
	cluster, err := s.core.AdmitAgent(connOf(stream.Context()), ids, identifiers)
	if err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	declared, err := header.GenAgentIdentifiers(identifiers[0])
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	wrapped := newAgentStream(stream)
	// Konnectivity files connections under (agent ID, connection ID), and connection
	// IDs start at 1 on each stream.
	rewritten, id := incoming.Copy(), cluster+"/"+ids[0]
	rewritten.Set(header.AgentID, fmt.Sprintf("%s/%d", id, streamNumber.Add(1)))
	wrapped.ctx = metadata.NewIncomingContext(stream.Context(), rewritten)
	defer s.join(id, slices.Concat(declared.Host, declared.IPv4, declared.IPv6))()
	return handler(srv, wrapped)
}

// join adds a stream of an agent. leave must be called when it has ended.
func (s *Server) join(id string, hosts []string) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agentIDs[id]++
	for _, host := range hosts {
		s.hosts[host]++
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		decrement(s.agentIDs, id)
		for _, host := range hosts {
			decrement(s.hosts, host)
		}
	}
}

// overStream reports whether konnectivity's server has to serve an address: one of its agents
// has it, and none with carriers.
func (s *Server) overStream(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil || s.core.Serves(address) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hosts[host] > 0
}

// Backends counts konnectivity's agents, those of one ID once, as konnectivity's server does.
func (s *Server) Backends() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.agentIDs)
}
