package carrier

import "fmt"

// FrameType is the first byte of a frame.
type FrameType byte

// The frames of protocol version 1. spec.md says who may send which, when.
const (
	FrameHello FrameType = iota + 1
	FrameOpen
	FrameAccept
	FrameRefuse
	FrameData
	FrameFin
	FrameReset
	FrameControl
)

const (
	// HeaderSize is the size of every frame's header: one byte type, three
	// bytes payload length, most significant first.
	HeaderSize = 4
	// MaxFrame is the size of the largest frame with its header: four TLS
	// records of 16 KiB, all of them full.
	MaxFrame = 64 << 10
	// MaxData is the largest payload of a DATA frame.
	MaxData = MaxFrame - HeaderSize
	// MaxControl is the largest payload of every other frame.
	MaxControl = smallBuffer - HeaderSize

	smallBuffer = 2 << 10
)

// AppendHeader appends the header of a frame with a payload of n bytes.
func AppendHeader(b []byte, t FrameType, n int) []byte {
	return append(b, byte(t), byte(n>>16), byte(n>>8), byte(n))
}

// ParseHeader decodes the HeaderSize bytes at the start of b. It refuses
// unknown types and lengths that the type does not allow.
func ParseHeader(b []byte) (FrameType, int, error) {
	if len(b) < HeaderSize {
		return 0, 0, fmt.Errorf("frame header of %d bytes is incomplete", len(b))
	}
	t, n := FrameType(b[0]), int(b[1])<<16|int(b[2])<<8|int(b[3])
	switch {
	case t < FrameHello || t > FrameControl:
		return 0, 0, fmt.Errorf("frame type %d is unknown", t)
	case t == FrameData && n <= MaxData:
	case t == FrameFin && n == 0:
	case t != FrameData && t != FrameFin && n <= MaxControl:
	default:
		return 0, 0, fmt.Errorf("frame of type %d has a length of %d", t, n)
	}
	return t, n, nil
}

// controlFrame makes a whole control frame of a payload that is appended.
func controlFrame(t FrameType, appendPayload func([]byte) []byte) []byte {
	b := appendPayload(make([]byte, HeaderSize, 128))
	AppendHeader(b[:0], t, len(b)-HeaderSize)
	return b
}
