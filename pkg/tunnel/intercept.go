package tunnel

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

// intercept puts a dialStream between konnectivity's client and its gRPC
// stream. It makes three things possible that the client's API does not: to
// tell an abnormal end from a clean one, to end a stream whose peer does not
// take data any more, and not to lose what a target says first.
//
// A stream is opened before the dial request is sent on it, out of sight of the
// caller. So the dial's id travels in the address of that request, down to
// here.
func (t *konnectivityTransport) intercept(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		cancel()
		return nil, err
	}
	return &dialStream{ClientStream: stream, transport: t, cancel: cancel, dialed: make(chan struct{})}, nil
}

type dialStream struct {
	grpc.ClientStream
	transport *konnectivityTransport
	cancel    context.CancelFunc
	state     *dialState    // set before dialed is closed
	dialed    chan struct{} // closed when the dial request was sent
	connected bool          // the dial's answer came; the reading goroutine's own
}

func (s *dialStream) SendMsg(m any) error {
	pkt, ok := m.(*client.Packet)
	if !ok || pkt.Type != client.PacketType_DIAL_REQ {
		return s.ClientStream.SendMsg(m)
	}
	w, address, err := s.transport.takeDial(pkt.GetDialRequest().Address)
	if err != nil {
		return err
	}
	pkt.GetDialRequest().Address = address
	w.mu.Lock()
	w.cancel = s.cancel
	w.mu.Unlock()
	s.state = w
	close(s.dialed)
	return s.ClientStream.SendMsg(m)
}

func (s *dialStream) RecvMsg(m any) error {
	if s.connected {
		// Also if the stream has ended: the client would end all connections that it knows, and
		// then add this one, whose reader would wait for ever. It asks for more only if the dial
		// has taken the answer, so ready comes.
		<-s.state.ready
	}
	err := s.ClientStream.RecvMsg(m)
	select {
	case <-s.dialed:
	default:
		return err // ended before it was used
	}
	if err != nil {
		s.ended(err)
		return err
	}
	if pkt, ok := m.(*client.Packet); ok {
		s.received(pkt)
	}
	return nil
}

func (s *dialStream) ended(err error) {
	if errors.Is(err, io.EOF) {
		err = errors.New("the proxy server ended the stream")
	}
	s.state.end(false, err)
}

func (s *dialStream) received(pkt *client.Packet) {
	switch pkt.Type {
	case client.PacketType_DIAL_RSP:
		s.connected = pkt.GetDialResponse().GetError() == ""
	case client.PacketType_CLOSE_RSP:
		if message := pkt.GetCloseResponse().GetError(); message != "" {
			s.state.end(false, errors.New(message))
			return
		}
		s.state.end(true, nil)
	}
}
