package proxyagent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"k8s.io/klog/v2"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	serverid "sigs.k8s.io/apiserver-network-proxy/proto/header"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/policy"
)

// headerTimeout bounds the wait for the server's first words. Without it, a
// load balancer that accepts and never answers would stop konnectivity's agent
// from connecting to anything, for good.
const headerTimeout = 30 * time.Second

// controlSessions puts the destination policy between konnectivity's agent and its
// stream to a proxy server.
//
// When serving ends it tells the server. Konnectivity's agent does so itself
// only after the next packet from the server, which may never come.
func controlSessions(serving context.Context, decide decision, servers *servers) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, agentapi.CarriersHeader, "1", agentapi.ProcessHeader, servers.carriers.process))
		stream, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil {
			cancel()
			return nil, err
		}
		wrapped := &controlSession{ClientStream: stream, decision: decide, servers: servers, cancel: cancel}
		forget := context.AfterFunc(serving, wrapped.leave)
		context.AfterFunc(ctx, func() {
			forget()
			wrapped.closeAll()
		})
		return wrapped, nil
	}
}

// decision says what to dial for a request, or that it is denied.
type decision func(network, address string) (policy.Target, error)

type controlSession struct {
	grpc.ClientStream
	decision decision
	servers  *servers
	serverID string // set by Header
	cancel   context.CancelFunc
	sendMu   sync.Mutex // gRPC allows one SendMsg at a time, and we send too

	openMu sync.Mutex
	open   map[int64]struct{} // connection IDs, as konnectivity's agent says them
	ended  bool
}

func (s *controlSession) Header() (metadata.MD, error) {
	timer := time.AfterFunc(headerTimeout, s.cancel)
	defer timer.Stop()
	header, err := s.ClientStream.Header()
	if id := header.Get(serverid.ServerID); err == nil && s.serverID == "" && len(id) == 1 {
		if s.servers.needsNoStream(id[0]) {
			s.cancel()
			return nil, fmt.Errorf("proxy server %q has a control carrier of this agent already", id[0])
		}
		s.serverID = id[0]
		if count := header.Get(serverid.ServerCount); len(count) == 1 {
			n, _ := strconv.Atoi(count[0]) // 0 is no number
			s.servers.counted(n)
		}
		s.servers.join(s.serverID, len(header.Get(agentapi.CarriersHeader)) > 0, s)
		// Konnectivity's agent closes a stream to a server that it has already
		// without reading from it, so only the context tells its end.
		context.AfterFunc(s.ClientStream.Context(), func() {
			s.servers.leave(s.serverID, s)
			s.cancel()
		})
	}
	return header, err
}

// end is part of control.
func (s *controlSession) end() { s.cancel() }

// over is part of control.
func (s *controlSession) over() bool { return false }

// leave tells the server that new dials should go elsewhere.
func (s *controlSession) leave() {
	_ = s.SendMsg(&client.Packet{Type: client.PacketType_DRAIN, Payload: &client.Packet_Drain{Drain: &client.Drain{}}})
}

func (s *controlSession) SendMsg(m any) error {
	if packet, ok := m.(*client.Packet); ok {
		s.count(packet)
	}
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	return s.ClientStream.SendMsg(m)
}

// count counts the connections that konnectivity's agent has open. It announces each
// one, and the end of each one.
func (s *controlSession) count(packet *client.Packet) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	before := len(s.open)
	switch response := packet.GetDialResponse(); {
	case packet.Type == client.PacketType_DIAL_RSP && response.GetError() == "" && !s.ended:
		if s.open == nil {
			s.open = map[int64]struct{}{}
		}
		s.open[response.GetConnectID()] = struct{}{}
	case packet.Type == client.PacketType_CLOSE_RSP:
		delete(s.open, packet.GetCloseResponse().GetConnectID())
	}
	s.servers.onStreams.Add(int64(len(s.open) - before))
}

// closeAll notes that the connections have ended with their stream.
func (s *controlSession) closeAll() {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	s.servers.onStreams.Add(-int64(len(s.open)))
	s.open, s.ended = nil, true
}

// RecvMsg returns to konnectivity's agent the next packet that it may act on.
func (s *controlSession) RecvMsg(m any) error {
	for {
		if err := s.ClientStream.RecvMsg(m); err != nil {
			s.cancel()
			return err
		}
		packet, ok := m.(*client.Packet)
		if !ok {
			return nil
		}
		if !agentapi.HasPayload(packet) {
			continue // konnectivity's agent would crash
		}
		switch packet.Type {
		case client.PacketType_DIAL_REQ:
		case agentapi.MoreCarriers:
			s.servers.more(s.serverID, agentapi.ControlNumber(packet))
			continue
		case agentapi.Draining:
			s.servers.drains(s.serverID, agentapi.ControlNumber(packet))
			continue
		case agentapi.ServerCount:
			s.servers.counted(agentapi.ControlNumber(packet))
			continue
		default:
			return nil
		}
		allowed, err := s.decide(packet.GetDialRequest())
		if allowed || err != nil {
			return err
		}
	}
}

// decide rewrites an allowed dial to the address of the agent's own choice, and
// answers a denied one.
func (s *controlSession) decide(dial *client.DialRequest) (allowed bool, err error) {
	target, err := s.decision(dial.Protocol, dial.Address)
	if err == nil {
		dial.Address = target.Address
		return true, nil
	}
	s.servers.carriers.noteDenied(s.Context(), dial.Protocol, dial.Address, err)
	return false, s.SendMsg(&client.Packet{
		Type:    client.PacketType_DIAL_RSP,
		Payload: &client.Packet_DialResponse{DialResponse: &client.DialResponse{Random: dial.Random, Error: err.Error()}},
	})
}

func (c *carrierDialer) noteDenied(ctx context.Context, network, address string, err error) {
	reason := "unknown"
	var denied *policy.Denied
	if errors.As(err, &denied) {
		reason = denied.Reason
	}
	c.denied.WithLabelValues(reason).Inc()
	klog.FromContext(ctx).Info("Denied a dial", "network", network, "address", address, "reason", reason)
}
