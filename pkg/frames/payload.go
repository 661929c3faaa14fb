package frames

import "encoding/base64"

// Stream is what a stream of a command is for, with the number of its channel by WebSocket.
type Stream byte

const (
	Stdin Stream = iota
	Stdout
	Stderr
	Errors
	Resize
	// ignored stands for all other channels, such as 255, by which version 5 ends another one.
	ignored = 255
)

// fromUser reports whether a stream goes from the user to the cluster. The other ones go the
// other way only: whoever gets something against the direction ignores it, and a recording
// that had it would show what nobody has seen or typed.
func (s Stream) fromUser() bool { return s == Stdin || s == Resize }

// spdyStreams are the streams of a command by the header streamtype, as the kubelet has it.
var spdyStreams = map[string]Stream{"stdin": Stdin, "stdout": Stdout, "stderr": Stderr, "error": Errors, "resize": Resize}

// Observe has take called with what is sent on the streams of a command, piece by piece and
// in order. A piece is not to be kept. If the connection cannot be understood any more, lost
// is called once, and take for no part of it that is not understood. Observe must be called
// before anything is followed; take and lost must not call the Follower.
func (f *Follower) Observe(take func(s Stream, p []byte), lost func(error)) {
	f.onLost = lost
	if f.web == nil && f.spdy == nil {
		f.lose(errProtocol)
		return
	}
	if f.spdy != nil {
		f.spdy.kinds = map[uint32]string{}
		payload := func(take func(Stream, []byte)) func(id uint32, p []byte) {
			return func(id uint32, p []byte) {
				kind, ok := f.spdy.kinds[id]
				if !ok {
					f.lose(errForeign)
					return
				}
				if stream, ok := spdyStreams[kind]; ok {
					take(stream, p)
				}
			}
		}
		f.spdy.toUser.onData, f.spdy.fromUser.onData = payload(f.only(false, take)), payload(f.only(true, take))
		return
	}
	f.webFromUser = &webReader{}
	for direction, fromUser := range map[*webReader]bool{f.web: false, f.webFromUser: true} {
		c := &channelReader{text: f.text, take: f.only(fromUser, take), lose: f.lose}
		direction.onMessage, direction.onData = c.begin, c.data
	}
}

// only returns take for what goes in one direction.
func (f *Follower) only(fromUser bool, take func(Stream, []byte)) func(Stream, []byte) {
	return func(s Stream, p []byte) {
		if s.fromUser() != fromUser {
			f.lose(errDirection)
			return
		}
		take(s, p)
	}
}

// channelReader takes the messages of one direction apart, of which the first byte is the
// channel.
type channelReader struct {
	take func(s Stream, p []byte)
	lose func(error)
	// text says that a message is base64 behind its first byte.
	text bool
	// fresh says that the next byte is a channel.
	fresh  bool
	stream Stream
	// four are letters of base64 that wait for more.
	four [4]byte
	have int
}

// begin begins a message.
func (c *channelReader) begin() {
	if c.have > 0 {
		c.lose(errBase64)
	}
	c.fresh, c.have = true, 0
}

// data has a part of a message.
func (c *channelReader) data(p []byte) {
	if len(p) == 0 {
		return
	}
	if c.fresh {
		c.fresh = false
		channel := p[0]
		if c.text {
			channel -= '0'
		}
		if c.stream = Stream(channel); channel > byte(Resize) {
			c.stream = ignored
		}
		p = p[1:]
	}
	switch {
	case c.stream == ignored || len(p) == 0:
	case c.text:
		c.decode(p)
	default:
		c.take(c.stream, p)
	}
}

// decode decodes base64 in pieces.
func (c *channelReader) decode(p []byte) {
	var plain [3 << 10]byte
	for len(p) > 0 {
		if c.have > 0 || len(p) < len(c.four) {
			n := copy(c.four[c.have:], p)
			p = p[n:]
			if c.have += n; c.have < len(c.four) {
				return
			}
			c.have = 0
			if !c.decoded(plain[:], c.four[:]) {
				return
			}
			continue
		}
		whole := min(len(p)/4*4, 4<<10)
		if !c.decoded(plain[:], p[:whole]) {
			return
		}
		p = p[whole:]
	}
}

func (c *channelReader) decoded(plain, text []byte) bool {
	n, err := base64.StdEncoding.Decode(plain, text)
	if err != nil {
		c.stream = ignored
		c.lose(errBase64)
		return false
	}
	c.take(c.stream, plain[:n])
	return true
}
