package proxyserver

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/handshakes"
)

// streamNumber makes agent IDs unique within the process.
var streamNumber atomic.Uint64

// agentStream is one agent's stream. It stands between the wire and
// konnectivity's server, so that the latter sees only packets that it can
// handle, and it counts what the agent carries.
type agentStream struct {
	grpc.ServerStream
	agentLink
	ctx context.Context

	servers *serverCount
	greeted chan struct{}
	greet   func() // closes greeted: the header was sent
	ended   chan struct{}
	endOnce func() // closes ended

	sendMu sync.Mutex // gRPC allows one SendMsg at a time

	mu      sync.Mutex
	pending map[int64]time.Time // when this agent was asked for a dial ID
	open    map[int64]struct{}  // connection IDs
}

// unanswered is how long an agent may take for a dial. Clients do not wait that
// long, and konnectivity's server does not tell when they have gone.
const unanswered = time.Minute

type agentStreamKey struct{}

func newAgentStream(stream grpc.ServerStream) *agentStream {
	s := &agentStream{
		ServerStream: stream,
		agentLink:    agentLink{started: time.Now()},
		pending:      map[int64]time.Time{},
		open:         map[int64]struct{}{},
		greeted:      make(chan struct{}),
		ended:        make(chan struct{}),
	}
	if p, ok := peer.FromContext(stream.Context()); ok {
		s.source, s.peer = handshakes.SourceOf(p.Addr), p.Addr.String()
	}
	incoming, _ := metadata.FromIncomingContext(stream.Context())
	s.announced = len(incoming.Get(agentapi.CarriersHeader)) > 0
	s.greet = sync.OnceFunc(func() { close(s.greeted) })
	s.endOnce = sync.OnceFunc(func() { close(s.ended) })
	s.ctx = context.WithValue(stream.Context(), agentStreamKey{}, s)
	return s
}

// Context holds the stream itself, by which the backend manager finds it.
func (s *agentStream) Context() context.Context { return s.ctx }

// end is part of control.
func (s *agentStream) end() { s.endOnce() }

// load is the number of connections that the agent has or was asked for.
func (s *agentStream) load() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.pending, func(_ int64, asked time.Time) bool { return time.Since(asked) > unanswered })
	return len(s.pending) + len(s.open)
}

func (s *agentStream) SendMsg(m any) error {
	if packet, ok := m.(*client.Packet); ok {
		s.mu.Lock()
		switch packet.Type {
		case client.PacketType_DIAL_REQ:
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

// SendHeader replaces the number of servers by the one of now: konnectivity's server
// knows only the one that it started with.
func (s *agentStream) SendHeader(md metadata.MD) error {
	if s.servers != nil && len(md.Get(header.ServerCount)) > 0 {
		md = md.Copy()
		md.Set(header.ServerCount, strconv.Itoa(s.servers.get()))
	}
	defer s.greet()
	return s.ServerStream.SendHeader(md)
}

// tell sends one of our own packets; whether it arrives shows elsewhere. Before
// konnectivity's server has said who we are, a packet would take the place of
// that.
func (s *agentStream) tell(what client.PacketType, n int) bool {
	select {
	case <-s.greeted:
	case <-s.ctx.Done():
		return true // the agent is gone
	}
	_ = s.SendMsg(agentapi.ControlPacket(what, n))
	return true
}

// carries is part of control.
func (s *agentStream) carries() bool { return false }

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
		if s.observe(packet) {
			return nil
		}
	}
}

// observe counts what packet changes and reports whether it may pass. An
// answer to a dial that this agent was not asked for may not, nor may the end of
// one: konnectivity would take it from any agent that knows the dial's number.
func (s *agentStream) observe(packet *client.Packet) bool {
	switch packet.Type {
	case client.PacketType_DIAL_RSP:
		response := packet.GetDialResponse()
		if s.answered(response) {
			return true
		}
		if response.ConnectID != 0 {
			// The dial was forgotten, so its connection serves no client.
			_ = s.SendMsg(&client.Packet{Type: client.PacketType_CLOSE_REQ, Payload: &client.Packet_CloseRequest{
				CloseRequest: &client.CloseRequest{ConnectID: response.ConnectID}}})
		}
		return false
	case client.PacketType_DIAL_CLS:
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, asked := s.pending[packet.GetCloseDial().Random]; !asked {
			return false
		}
		delete(s.pending, packet.GetCloseDial().Random)
	case client.PacketType_DRAIN:
		s.draining.Store(true)
	case client.PacketType_CLOSE_RSP:
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, packet.GetCloseResponse().ConnectID)
	}
	return true
}

// answered notes the answer to a dial, and reports whether the agent was asked
// for it.
func (s *agentStream) answered(response *client.DialResponse) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, asked := s.pending[response.Random]; !asked {
		return false
	}
	delete(s.pending, response.Random)
	if response.Error == "" {
		s.open[response.ConnectID] = struct{}{}
	}
	return true
}

// checkPayload refuses what konnectivity's server cannot handle.
func checkPayload(packet *client.Packet) error {
	if !agentapi.HasPayload(packet) {
		return status.Errorf(codes.InvalidArgument, "packet of type %s without its payload", packet.Type)
	}
	return nil
}

// interceptAgent decides whose agent is on a stream before konnectivity's
// server sees it.
func (s *Server) interceptAgent(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	wrapped := newAgentStream(stream)
	wrapped.servers = s.servers
	incoming, _ := metadata.FromIncomingContext(stream.Context())
	says := declaration{ids: incoming.Get(header.AgentID), identifiers: incoming.Get(header.AgentIdentifiers), process: strings.Join(incoming.Get(agentapi.ProcessHeader), "")}
	if err := s.admitAgent(&wrapped.agentLink, peerConnOf(stream.Context()), says); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	if s.options.AgentIdentity == IdentityCertificate {
		// Konnectivity files connections under (agent ID, connection ID), and connection
		// IDs start at 1 on each stream.
		rewritten := incoming.Copy()
		rewritten.Set(header.AgentID, fmt.Sprintf("%s/%s/%d", wrapped.cluster, wrapped.agentID, streamNumber.Add(1)))
		wrapped.ctx = metadata.NewIncomingContext(wrapped.ctx, rewritten)
	}
	if err := stream.SetHeader(metadata.Pairs(agentapi.CarriersHeader, "1")); err != nil {
		return err
	}
	_, leave, err := s.joinAgent(wrapped)
	if err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	defer leave()
	served := make(chan error, 1)
	go func() { served <- handler(srv, wrapped) }()
	select {
	case err := <-served:
		return err
	case <-wrapped.ended:
		return status.Error(codes.Unavailable, "the proxy server ended this stream: it is about to stop, or the agent has too many")
	}
}
