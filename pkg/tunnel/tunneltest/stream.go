package tunneltest

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

// errNoAgent has the words of konnectivity's server.
//
//lint:ignore ST1005 they are capitalized
var errNoAgent = errors.New("No agent available")

// connectID numbers connections; 0 is none.
var connectID atomic.Int64

// proxyService serves one connection per stream.
type proxyService struct{ hub *Hub }

// stream is one tunnelled connection.
type stream struct {
	client.ProxyService_ProxyServer
	address string
	id      int64
	target  net.Conn
	sending sync.Mutex
}

func (p proxyService) Proxy(wire client.ProxyService_ProxyServer) error {
	pkt, err := wire.Recv()
	if err != nil {
		return err
	}
	dial := pkt.GetDialRequest()
	if dial == nil {
		return fmt.Errorf("first packet is a %s, not a dial request", pkt.Type)
	}
	s := &stream{ProxyService_ProxyServer: wire, address: dial.Address}
	s.target, err = p.hub.open(wire.Context(), dial.Address)
	if err != nil {
		return s.send(&client.Packet{Type: client.PacketType_DIAL_RSP, Payload: &client.Packet_DialResponse{
			DialResponse: &client.DialResponse{Random: dial.Random, Error: err.Error()}}})
	}
	defer s.target.Close()
	s.id = connectID.Add(1)
	p.hub.add(s)
	defer p.hub.remove(s)
	if err := s.send(&client.Packet{Type: client.PacketType_DIAL_RSP, Payload: &client.Packet_DialResponse{
		DialResponse: &client.DialResponse{Random: dial.Random, ConnectID: s.id}}}); err != nil {
		return err
	}
	return s.relay()
}

// relay copies both ways until the client or the target ends the connection.
func (s *stream) relay() error {
	fromTarget := make(chan error, 1)
	go func() { fromTarget <- s.download() }()
	fromClient := make(chan error, 1)
	go func() { fromClient <- s.upload() }()
	select {
	case err := <-fromTarget:
		return err
	case err := <-fromClient:
		_ = s.target.Close()
		<-fromTarget
		return err
	}
}

// download sends what the target writes, and then the end of the connection.
func (s *stream) download() error {
	chunk := make([]byte, 32<<10)
	for {
		n, err := s.target.Read(chunk)
		if n > 0 {
			data := &client.Data{ConnectID: s.id, Data: chunk[:n]}
			if err := s.send(&client.Packet{Type: client.PacketType_DATA, Payload: &client.Packet_Data{Data: data}}); err != nil {
				return err
			}
		}
		if err != nil {
			return s.send(&client.Packet{Type: client.PacketType_CLOSE_RSP, Payload: &client.Packet_CloseResponse{
				CloseResponse: &client.CloseResponse{ConnectID: s.id}}})
		}
	}
}

// upload writes what the client sends to the target until the client closes.
func (s *stream) upload() error {
	for {
		pkt, err := s.Recv()
		if err != nil {
			return err
		}
		switch pkt.Type {
		case client.PacketType_DATA:
			if _, err := s.target.Write(pkt.GetData().Data); err != nil {
				// The downloading side sees the same end and tells the client.
				<-s.Context().Done()
				return nil
			}
		case client.PacketType_CLOSE_REQ, client.PacketType_DIAL_CLS:
			return nil
		}
	}
}

func (s *stream) send(pkt *client.Packet) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.Send(pkt)
}
