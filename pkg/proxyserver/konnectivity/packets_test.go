package konnectivity

import (
	"bytes"
	"io"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

func dataOn(connection int64, data string) *client.Packet {
	return &client.Packet{Type: client.PacketType_DATA, Payload: &client.Packet_Data{
		Data: &client.Data{ConnectID: connection, Data: []byte(data)}}}
}

// buffersOf cuts a message as gRPC's transport does: after each frame.
func buffersOf(message []byte, first int) mem.BufferSlice {
	first = max(0, min(first, len(message)))
	return mem.BufferSlice{mem.SliceBuffer(message[:first]), mem.SliceBuffer(message[first:])}
}

func TestPacketsOfData(t *testing.T) {
	long := string(bytes.Repeat([]byte("0123456789"), 10_000))
	withError := dataOn(1, "text")
	withError.GetData().Error = "why"
	for _, test := range []struct {
		name   string
		packet *client.Packet
		first  int
		direct bool
	}{
		{"long", dataOn(1, long), 16 << 10, true},
		{"short", dataOn(1<<40, "x"), 100, true},
		{"in two just before the data", dataOn(1, "0123456789"), 8, true},
		{"in two within the head", dataOn(1, "0123456789"), 3, false},
		{"empty", dataOn(1, ""), 100, false},
		{"no connection", dataOn(0, "x"), 100, false},
		{"an error too", withError, 100, false},
		{"no data", dialPacket("c1:80", 7), 100, false},
		{"nothing", &client.Packet{}, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			message, err := proto.Marshal(test.packet)
			if err != nil {
				t.Fatal(err)
			}
			var got clientPacket
			if err := newPacketCodec().Unmarshal(buffersOf(message, test.first), &got); err != nil {
				t.Fatal(err)
			}
			if direct := got.data != nil; direct != test.direct {
				t.Fatalf("taken as data without decoding: %t, want %t", direct, test.direct)
			}
			if !test.direct {
				if !proto.Equal(got.other, test.packet) {
					t.Errorf("got %v, want %v", got.other, test.packet)
				}
				return
			}
			data, err := io.ReadAll(got.data)
			if want := test.packet.GetData(); err != nil || got.connection != want.ConnectID || !bytes.Equal(data, want.Data) {
				t.Errorf("got %d bytes on connection %d, %v; want %d on %d", len(data), got.connection, err, len(want.Data), want.ConnectID)
			}
		})
	}
}

// FuzzPackets holds that what is taken as data without decoding is that same
// data to protobuf, and nothing besides.
func FuzzPackets(f *testing.F) {
	for _, packet := range []*client.Packet{dataOn(1, "text"), dataOn(-1, "x"), dialPacket("c1:80", 7)} {
		message, err := proto.Marshal(packet)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(message, len(message))
		f.Add(append(message, message...), len(message))
	}
	f.Fuzz(func(t *testing.T, message []byte, first int) {
		connection, before, ok := beforeData(buffersOf(message, first))
		if !ok {
			return
		}
		packet := new(client.Packet)
		if err := proto.Unmarshal(message, packet); err != nil {
			t.Fatalf("protobuf refuses %x: %v", message, err)
		}
		want := dataOn(connection, string(message[before:]))
		if !proto.Equal(packet, want) {
			t.Errorf("%x is %v to protobuf, taken as %v", message, packet, want)
		}
	})
}

func dialPacket(address string, random int64) *client.Packet {
	return &client.Packet{Type: client.PacketType_DIAL_REQ, Payload: &client.Packet_DialRequest{
		DialRequest: &client.DialRequest{Protocol: "tcp", Address: address, Random: random}}}
}
