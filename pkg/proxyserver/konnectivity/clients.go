package konnectivity

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server/metrics"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
)

// dataSize is the most that one DATA packet to a client holds. With its
// framing it fills two HTTP/2 frames; larger ones gain nothing.
const dataSize = 32<<10 - 64

// onlyConnection is the connection ID of a stream that this package serves: a
// client's stream carries one connection.
const onlyConnection = 1

// interceptClient checks the role of a client, and serves its stream.
func (s *Server) interceptClient(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := s.core.AdmitClient(connOf(stream.Context())); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	first := new(client.Packet)
	if err := stream.RecvMsg(first); err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	dial := first.GetDialRequest()
	switch {
	case first.Type != client.PacketType_DIAL_REQ || dial == nil:
		return status.Errorf(codes.InvalidArgument, "the first packet is a %s, not a DIAL_REQ with its payload", first.Type)
	case !s.overStream(dial.Address):
		// The stream is joined to a carrier of its own, which no other stream waits for.
		return s.serveDial(stream, dial)
	}
	if err := s.core.Overloaded(); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return handler(srv, &clientStream{ServerStream: &replayedStream{ServerStream: stream, first: first}})
}

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

// replayedStream replays the first packet, which was read from it already.
type replayedStream struct {
	grpc.ServerStream
	first *client.Packet
}

func (s *replayedStream) RecvMsg(m any) error {
	packet, ok := m.(*client.Packet)
	if s.first == nil || !ok {
		return s.ServerStream.RecvMsg(m)
	}
	proto.Reset(packet)
	proto.Merge(packet, s.first)
	s.first = nil
	return nil
}

func (s *Server) serveDial(stream grpc.ServerStream, dial *client.DialRequest) error {
	metrics.Metrics.ConnectionInc(metrics.Proxy)
	defer metrics.Metrics.ConnectionDec(metrics.Proxy)
	ctx, cancel := context.WithTimeout(stream.Context(), s.options.DialTimeout)
	conn, err := s.core.Open(ctx, carrier.OpenRequest{Network: dial.Protocol, Address: dial.Address})
	cancel()
	if err != nil {
		if stream.Context().Err() != nil {
			return stream.Context().Err()
		}
		return stream.SendMsg(dialResponse(dial.Random, 0, errorText(err)))
	}
	defer conn.Close()
	if err := stream.SendMsg(dialResponse(dial.Random, onlyConnection, "")); err != nil {
		conn.Abort(&carrier.Error{Code: carrier.Canceled, Message: "the client is gone"})
		return err
	}
	var sent, received int64
	ended := s.core.BeginConnection(connOf(stream.Context()), dial.Address)
	defer func() { ended(sent, received) }()
	return joinStream(stream, conn, &sent, &received)
}

// errorText returns the message of a refusal, without the words that this side adds.
func errorText(err error) string {
	var refused *carrier.Error
	if errors.As(err, &refused) && refused.Message != "" {
		return refused.Message
	}
	return err.Error()
}

// joinStream carries bytes between a client's stream and a connection until
// both directions have ended, and counts them.
func joinStream(stream grpc.ServerStream, conn *carrier.Conn, sent, received *int64) error {
	down := make(chan error, 1)
	go func() { down <- sendData(stream, conn, received) }()
	// A client that is gone must not wait for a target that does not read.
	gone := context.AfterFunc(stream.Context(), func() {
		conn.Abort(&carrier.Error{Code: carrier.Canceled, Message: "the client is gone"})
	})
	up := receiveData(stream, conn, sent)
	gone()
	if up != nil {
		// The stream broke: what still comes is not read.
		conn.Abort(&carrier.Error{Code: carrier.Canceled, Message: "the client is gone"})
		<-down
		return up
	}
	// The client closed: everything that it sent is on its way, and so is the
	// end of it. Nobody wants what the target still sends.
	_ = conn.Close()
	return <-down
}

// receiveData writes a client's data to the connection, and returns nil when the
// client closed it.
func receiveData(stream grpc.ServerStream, conn *carrier.Conn, count *int64) error {
	packet := new(clientPacket)
	broken := false
	for {
		if err := stream.RecvMsg(packet); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if packet.data != nil {
			err := checkOnly(packet.connection)
			if err == nil && !broken { // sendData tells the client what broke
				n, failed := conn.WriteFrom(packet.data, packet.data.Remaining())
				*count += n
				broken = failed != nil
			}
			_ = packet.data.Close()
			if err != nil {
				return err
			}
			continue
		}
		switch other := packet.other; other.Type {
		case client.PacketType_DATA:
			data := other.GetData()
			if err := checkOnly(data.GetConnectID()); err != nil {
				return err
			}
			n, err := conn.Write(data.GetData())
			*count += int64(n)
			broken = broken || err != nil
		case client.PacketType_CLOSE_REQ:
			return checkOnly(other.GetCloseRequest().GetConnectID())
		case client.PacketType_DIAL_REQ:
			return status.Error(codes.InvalidArgument, "second dial on one stream")
		}
	}
}

// checkOnly refuses the number of any connection but the stream's own.
func checkOnly(connection int64) error {
	if connection != onlyConnection {
		return status.Errorf(codes.PermissionDenied, "connection %d is not this stream's", connection)
	}
	return nil
}

// sendData sends what the connection gives, and then that it is closed and why.
func sendData(stream grpc.ServerStream, conn *carrier.Conn, count *int64) error {
	w := &dataWriter{stream: stream}
	n, err := conn.WriteTo(w)
	*count = n
	if w.err != nil {
		return w.err
	}
	text := ""
	// ErrClosed is the client's own CLOSE_REQ.
	if err != nil && !errors.Is(err, net.ErrClosed) {
		text = errorText(err)
	}
	return stream.SendMsg(&client.Packet{Type: client.PacketType_CLOSE_RSP, Payload: &client.Packet_CloseResponse{
		CloseResponse: &client.CloseResponse{ConnectID: onlyConnection, Error: text}}})
}

// dataWriter sends what is written to it as DATA packets.
type dataWriter struct {
	stream grpc.ServerStream
	err    error
}

func (w *dataWriter) Write(p []byte) (int, error) {
	data := &client.Data{ConnectID: onlyConnection}
	packet := &client.Packet{Type: client.PacketType_DATA, Payload: &client.Packet_Data{Data: data}}
	sent := 0
	for sent < len(p) {
		data.Data = p[sent:min(len(p), sent+dataSize)]
		if w.err = w.stream.SendMsg(packet); w.err != nil {
			return sent, w.err
		}
		sent += len(data.Data)
	}
	return sent, nil
}

func dialResponse(random, connection int64, text string) *client.Packet {
	return &client.Packet{Type: client.PacketType_DIAL_RSP, Payload: &client.Packet_DialResponse{
		DialResponse: &client.DialResponse{Random: random, ConnectID: connection, Error: text}}}
}

// admitHTTPClient is interceptClient for HTTP CONNECT.
func (s *Server) admitHTTPClient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.core.AdmitClient(r.Context().Value(connKey{}).(*tls.Conn)); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// connectOverCarriers serves HTTP CONNECT for agents with carriers, and leaves
// the rest to next.
func (s *Server) connectOverCarriers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.core.Overloaded(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if r.Method != http.MethodConnect || s.overStream(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		metrics.Metrics.HTTPConnectionInc()
		defer metrics.Metrics.HTTPConnectionDec()
		ctx, cancel := context.WithTimeout(r.Context(), s.options.DialTimeout)
		conn, err := s.core.Open(ctx, carrier.OpenRequest{Network: "tcp", Address: r.Host})
		cancel()
		if err != nil {
			writeConnectError(w, err)
			return
		}
		defer conn.Close()
		// Relay does not count.
		defer s.core.BeginConnection(r.Context().Value(connKey{}).(*tls.Conn), r.Host)(-1, -1)
		raw, err := connect.Accept(w, r)
		if err != nil {
			conn.Abort(err)
			if !errors.Is(err, http.ErrAbortHandler) {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
			return
		}
		_ = carrier.Relay(conn, raw.(net.Conn)) // the frontend speaks HTTP/1.1 only
	})
}

func writeConnectError(w http.ResponseWriter, err error) {
	code := http.StatusBadGateway
	switch carrier.CodeOf(err) {
	case 0, carrier.NoAgent, carrier.NoSuchCluster, carrier.Overloaded, carrier.Draining:
		code = http.StatusServiceUnavailable
	case carrier.TimedOut:
		code = http.StatusGatewayTimeout
	case carrier.Denied:
		code = http.StatusForbidden
	}
	http.Error(w, errorText(err), code)
}
