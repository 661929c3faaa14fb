package konnectivity

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// receivedPackets is a stream that receives messages as gRPC cuts them, and then ends.
type receivedPackets struct {
	grpc.ServerStream
	messages [][]byte
}

func (s *receivedPackets) RecvMsg(m any) error {
	if len(s.messages) == 0 {
		return io.EOF
	}
	next := s.messages[0]
	s.messages = s.messages[1:]
	return newPacketCodec().Unmarshal(buffersOf(next, 16<<10), m)
}

// countedWrites is a transport that counts what is written to it.
type countedWrites struct {
	net.Conn
	writes, bytes atomic.Int64
}

func (c *countedWrites) Write(p []byte) (int, error) {
	c.writes.Add(1)
	c.bytes.Add(int64(len(p)))
	return c.Conn.Write(p)
}

// TestPacketIsOneFrame has a client's packets go to an agent: each as one frame, since
// each frame costs both relays a write, a read and records of TLS.
func TestPacketIsOneFrame(t *testing.T) {
	here, there := net.Pipe()
	go func() {
		_, _, err := carrier.Accepted(t.Context(), there, carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(func(_ context.Context, p *carrier.Pending) {
			if conn, err := p.Accept(carrier.Endpoints{}); err == nil {
				_, _ = io.Copy(io.Discard, conn)
			}
		})})
		if err != nil {
			t.Errorf("accepting a carrier: %v", err)
		}
	}()
	counted := &countedWrites{Conn: here}
	c, err := carrier.Dialed(t.Context(), counted, carrier.Hello{}, carrier.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	conn, err := c.Open(t.Context(), carrier.OpenRequest{Network: "tcp", Address: "target:443"})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name       string
		size       int
		wantFrames int64
	}{
		{"short", 100, 1},
		{"as kubectl's uploads", 32 << 10, 1},
		{"longer than a frame", 100 << 10, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			message, err := proto.Marshal(dataOn(onlyConnection, strings.Repeat("x", test.size)))
			if err != nil {
				t.Fatal(err)
			}
			counted.writes.Store(0)
			counted.bytes.Store(0)
			var count int64
			if err := receiveData(&receivedPackets{messages: [][]byte{message}}, conn, &count); err != nil {
				t.Fatal(err)
			}
			frames, framed := counted.writes.Load(), counted.bytes.Load()
			if want := int64(test.size) + test.wantFrames*carrier.HeaderSize; frames != test.wantFrames || framed != want || count != int64(test.size) {
				t.Errorf("%d bytes are %d frames of %d bytes, and counted as %d; want %d frames of %d bytes", test.size, frames, framed, count, test.wantFrames, want)
			}
		})
	}
}
