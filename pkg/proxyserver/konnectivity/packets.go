package konnectivity

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

// Numbers of fields in konnectivity's client.proto, in the order in which
// encoders write them.
const (
	packetType       = 1 // varint, of Packet
	packetData       = 4 // Data, of Packet
	dataConnectionID = 1 // varint, of Data
	dataBytes        = 3 // bytes, of Data
)

// clientPacket is what a client sent: data where gRPC read it to, or another
// packet. Decoded as usual, data is copied twice and is garbage afterwards, and
// a proxy server with a small heap collects that dozens of times a second.
type clientPacket struct {
	// data is not nil in DATA packets of the usual form, and must be closed.
	data       *mem.Reader
	connection int64 // of data
	other      *client.Packet
}

// packetCodec decodes a *clientPacket by itself and leaves the rest to gRPC's
// own codec.
type packetCodec struct{ encoding.CodecV2 }

func newPacketCodec() packetCodec { return packetCodec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal is part of encoding.CodecV2.
func (c packetCodec) Unmarshal(message mem.BufferSlice, v any) error {
	packet, ok := v.(*clientPacket)
	if !ok {
		return c.CodecV2.Unmarshal(message, v)
	}
	*packet = clientPacket{}
	if connection, before, ok := beforeData(message); ok {
		packet.connection, packet.data = connection, message.Reader()
		_, err := packet.data.Discard(before)
		return err
	}
	packet.other = new(client.Packet)
	return c.CodecV2.Unmarshal(message, packet.other)
}

// beforeData returns the connection of a DATA packet and how many bytes come
// before the data in it. It takes only what protobuf's encoders write: each
// field once, in order, and nothing behind the data, so that no two readers can
// see different packets in it.
func beforeData(message mem.BufferSlice) (connection int64, before int, ok bool) {
	if len(message) == 0 {
		return 0, 0, false
	}
	total, rest := message.Len(), message[0].ReadOnlyData()
	left := func() int { return total - before }
	varint := func() (value uint64) {
		value, n := protowire.ConsumeVarint(rest)
		if ok = ok && n > 0; ok {
			rest, before = rest[n:], before+n
		}
		return value
	}
	field := func(number protowire.Number, kind protowire.Type) {
		tag := varint()
		ok = ok && tag == protowire.EncodeTag(number, kind)
	}
	ok = true
	field(packetType, protowire.VarintType)
	ok = ok && varint() == uint64(client.PacketType_DATA)
	field(packetData, protowire.BytesType)
	ok = ok && varint() == uint64(left())
	field(dataConnectionID, protowire.VarintType)
	connection = int64(varint())
	field(dataBytes, protowire.BytesType)
	ok = ok && varint() == uint64(left())
	return connection, before, ok
}
