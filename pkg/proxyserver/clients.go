package proxyserver

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// clientStream is one client's stream, which is one connection. It lets
// nothing through that belongs to another one: konnectivity forwards DATA and
// CLOSE_REQ by the connection ID that the client writes into them.
type clientStream struct {
	grpc.ServerStream

	mu        sync.Mutex
	dialed    bool
	connectID int64 // 0 until the dial succeeded
}

func (s *clientStream) SendMsg(m any) error {
	if packet, ok := m.(*client.Packet); ok && packet.Type == client.PacketType_DIAL_RSP {
		s.mu.Lock()
		s.connectID = packet.GetDialResponse().GetConnectID()
		s.mu.Unlock()
	}
	return s.ServerStream.SendMsg(m)
}

func (s *clientStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	packet, ok := m.(*client.Packet)
	if !ok {
		return status.Errorf(codes.Internal, "message of type %T on a client's stream", m)
	}
	if err := checkPayload(packet); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch packet.Type {
	case client.PacketType_DIAL_REQ:
		// A second dial would move the stream to another agent, and packets of
		// the first connection with it.
		if s.dialed {
			return status.Error(codes.InvalidArgument, "second dial on one stream")
		}
		s.dialed = true
	case client.PacketType_DATA:
		return s.checkConnection(packet.GetData().ConnectID)
	case client.PacketType_CLOSE_REQ:
		return s.checkConnection(packet.GetCloseRequest().ConnectID)
	}
	return nil
}

func (s *clientStream) checkConnection(id int64) error {
	if id == 0 || id != s.connectID {
		return status.Errorf(codes.PermissionDenied, "connection %d is not this stream's", id)
	}
	return nil
}

// interceptClient checks the role of a gRPC client.
func (s *Server) interceptClient(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if s.checksRoles() {
		state, err := peerTLS(stream.Context())
		if err == nil {
			err = s.admitClient(stream.Context(), state)
		}
		if err != nil {
			return status.Error(codes.PermissionDenied, err.Error())
		}
	}
	return s.serveStream(srv, stream, handler)
}

// admitHTTPClient is interceptClient for HTTP CONNECT.
func (s *Server) admitHTTPClient(next http.Handler) http.Handler {
	if !s.checksRoles() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil {
			http.Error(w, errNoTLS.Error(), http.StatusForbidden)
			return
		}
		if err := s.admitClient(r.Context(), *r.TLS); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// checksRoles is false on a Unix socket, where file permissions decide.
func (s *Server) checksRoles() bool {
	return s.options.AgentIdentity == IdentityCertificate && s.options.UDSName == ""
}

func (s *Server) admitClient(ctx context.Context, state tls.ConnectionState) error {
	_, err := pki.PeerRole(state)
	if err == nil {
		err = s.stillTrusted(state)
	}
	if err != nil {
		s.metrics.clientsRejected.WithLabelValues("role").Inc()
		s.logger.Info("Client rejected", "reason", "role", "error", err.Error(), "peer", peerAddress(ctx))
	}
	return err
}

var errNoTLS = errors.New("the connection has no TLS")

func peerTLS(ctx context.Context) (tls.ConnectionState, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return tls.ConnectionState{}, errNoTLS
	}
	info, ok := p.AuthInfo.(authInfo)
	if !ok {
		return tls.ConnectionState{}, errNoTLS
	}
	return info.State, nil
}

// peerConnOf returns the connection of a stream, or nil if it has no TLS.
func peerConnOf(ctx context.Context) *tls.Conn {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(authInfo); ok {
			return info.conn
		}
	}
	return nil
}

func peerAddress(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}
