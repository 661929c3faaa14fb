package frames

import "encoding/binary"

// Opcodes of WebSocket frames (RFC 6455, 5.2), and the bits beside them.
const (
	opContinuation, opText, opBinary, opClose, opPong = 0, 1, 2, 8, 10

	bitFin, bitMask = 0x80, 0x80
	// bitsReserved are for extensions, such as compression.
	bitsReserved = 0x70
	// closeNormal, closeGoingAway and closePolicy are why a WebSocket ends.
	closeNormal, closeGoingAway, closePolicy = 1000, 1001, 1008
	// maxHeader is the longest header of a frame: its length in 8 bytes, and a mask.
	maxHeader = 14
)

// webReader follows one direction of WebSocket.
type webReader struct {
	header [maxHeader]byte
	have   int
	left   uint64
	// at is how much of the payload came, for the mask.
	at int
	// open says that a message of several frames has not ended.
	open bool
	// onMessage is told that a message begins, and onData gets the payload of messages, if
	// they are not nil.
	onMessage func()
	onData    func(p []byte)
	// strange says that there was a frame of which the payload means something unknown.
	strange bool
}

// message reports whether a whole message came last.
func (r *webReader) message() bool { return r.have == 0 && !r.open }

// size is that of the header, as far as it is known yet.
func (r *webReader) size() int {
	if r.have < 2 {
		return 2
	}
	size := 2
	switch r.header[1] &^ bitMask {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	if r.header[1]&bitMask != 0 {
		size += 4
	}
	return size
}

// next follows p to the end of a frame, or to its own.
func (r *webReader) next(p []byte) (n int) {
	for size := r.size(); r.have < size; size = r.size() {
		if n == len(p) {
			return n
		}
		r.header[r.have] = p[n]
		r.have++
		n++
		if r.have == r.size() {
			r.begin()
			break
		}
	}
	part := p[n:]
	if uint64(len(part)) > r.left {
		part = part[:r.left]
	}
	r.data(part)
	n += len(part)
	if r.left -= uint64(len(part)); r.left == 0 {
		r.have = 0
	}
	return n
}

func (r *webReader) begin() {
	r.at = 0
	switch length := r.header[1] &^ bitMask; length {
	case 126:
		r.left = uint64(binary.BigEndian.Uint16(r.header[2:]))
	case 127:
		r.left = binary.BigEndian.Uint64(r.header[2:])
	default:
		r.left = uint64(length)
	}
	opcode := r.header[0] & 0x0f
	if r.header[0]&bitsReserved != 0 || r.left >= 1<<63 || opcode > opBinary && opcode < opClose || opcode > opPong || opcode < opClose && (opcode == opContinuation) != r.open {
		r.strange = true
	}
	if opcode < opClose {
		r.open = r.header[0]&bitFin == 0
	}
	if (opcode == opText || opcode == opBinary) && r.onMessage != nil {
		r.onMessage()
	}
}

// data passes payload of messages on, without its mask.
func (r *webReader) data(part []byte) {
	if r.onData == nil || r.header[0]&0x0f >= opClose || r.strange {
		return
	}
	if r.header[1]&bitMask == 0 {
		r.onData(part)
		return
	}
	mask := r.header[r.have-4 : r.have]
	var plain [512]byte
	for len(part) > 0 {
		n := min(len(part), len(plain))
		for i := range n {
			plain[i] = part[i] ^ mask[(r.at+i)%4]
		}
		r.onData(plain[:n])
		r.at = (r.at + n) % 4
		part = part[n:]
	}
}

// appendFrame appends a frame that is a whole message, or a control frame.
func appendFrame(to []byte, opcode byte, payload ...[]byte) []byte {
	length := 0
	for _, part := range payload {
		length += len(part)
	}
	to = append(to, bitFin|opcode)
	switch {
	case length < 126:
		to = append(to, byte(length))
	case length < 1<<16:
		to = binary.BigEndian.AppendUint16(append(to, 126), uint16(length))
	default:
		to = binary.BigEndian.AppendUint64(append(to, 127), uint64(length))
	}
	for _, part := range payload {
		to = append(to, part...)
	}
	return to
}

// appendClose appends the last frame, with a reason, of which there is room for 123 bytes.
func appendClose(to []byte, code uint16, reason string) []byte {
	return appendFrame(to, opClose, binary.BigEndian.AppendUint16(nil, code), []byte(reason[:min(len(reason), 123)]))
}
