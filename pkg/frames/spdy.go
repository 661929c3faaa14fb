package frames

import (
	"bytes"
	"encoding/binary"

	"github.com/moby/spdystream/spdy"
)

const (
	// maxControl is how much of a control frame is kept, and maxStreams how many streams
	// are known.
	maxControl = 16 << 10
	maxStreams = 1000
	// maxHeaders and maxHeaderBytes bound the headers of a stream, uncompressed.
	maxHeaders, maxHeaderBytes = 64, 4 << 10

	spdyHeader = 8
	// flagFin ends one direction of a stream.
	flagFin = 1
)

// spdyReader follows one direction of SPDY.
type spdyReader struct {
	header [spdyHeader]byte
	have   int
	// left is how much of the frame is to come.
	left int
	// kept is the frame so far, if it is one of those that onControl is called for.
	kept        []byte
	wants, lost bool
	// onControl gets whole control frames, and onEnd the data frames that end a stream.
	onControl func(kind spdy.ControlFrameType, frame []byte)
	onEnd     func(stream uint32)
	// onData gets the payload of data frames, if it is not nil.
	onData func(stream uint32, p []byte)
}

// between reports whether a whole frame came last.
func (r *spdyReader) between() bool { return r.have == 0 }

// next follows p to the end of a frame, or to its own.
func (r *spdyReader) next(p []byte) (n int) {
	if r.have < spdyHeader {
		n = copy(r.header[r.have:], p)
		if r.have += n; r.have < spdyHeader {
			return n
		}
		r.begin()
	}
	part := p[n:min(len(p), n+r.left)]
	switch {
	case r.wants:
		r.kept = append(r.kept, part...)
	case r.onData != nil && len(part) > 0 && !r.control():
		r.onData(binary.BigEndian.Uint32(r.header[:]), part)
	}
	n += len(part)
	if r.left -= len(part); r.left == 0 {
		r.end()
	}
	return n
}

func (r *spdyReader) control() bool { return r.header[0]&0x80 != 0 }

func (r *spdyReader) kind() spdy.ControlFrameType {
	return spdy.ControlFrameType(binary.BigEndian.Uint16(r.header[2:]))
}

// begin looks at a header.
func (r *spdyReader) begin() {
	r.left = int(binary.BigEndian.Uint32(r.header[4:]) & 0xffffff)
	if !r.control() {
		return
	}
	if binary.BigEndian.Uint16(r.header[:])&0x7fff != spdy.Version {
		r.lost = true
		return
	}
	switch r.kind() {
	case spdy.TypeSynStream, spdy.TypeSynReply, spdy.TypeHeaders, spdy.TypeRstStream:
		r.wants = r.left <= maxControl
		r.lost = r.lost || !r.wants
		r.kept = append(r.kept[:0], r.header[:]...)
	}
}

// end has a whole frame.
func (r *spdyReader) end() {
	r.have = 0
	switch {
	case r.wants:
		r.wants = false
		r.onControl(r.kind(), r.kept)
	case !r.control() && r.header[4]&flagFin != 0:
		r.onEnd(binary.BigEndian.Uint32(r.header[:]))
	}
}

// spdyConn follows both directions.
type spdyConn struct {
	fromUser, toUser spdyReader
	// streams are those that the user opened and the cluster has not ended: what they are for.
	streams map[uint32]string
	order   []uint32
	// kinds are all that the user ever opened, if payload is followed: what was sent on one
	// that is reset can still arrive. They are nil otherwise.
	kinds map[uint32]string
	// last is the newest one: a user counts up.
	last uint32
	lost bool

	framer *spdy.Framer
	unread bytes.Buffer
}

func newSPDY() *spdyConn {
	c := &spdyConn{streams: map[uint32]string{}}
	c.fromUser = spdyReader{onControl: c.userFrame, onEnd: func(uint32) {}}
	c.toUser = spdyReader{onControl: c.clusterFrame, onEnd: c.forget}
	return c
}

// isLost reports whether something was not understood.
func (c *spdyConn) isLost() bool { return c.lost || c.fromUser.lost || c.toUser.lost }

func (c *spdyConn) userFrame(kind spdy.ControlFrameType, frame []byte) {
	if c.lost {
		return
	}
	if kind == spdy.TypeRstStream {
		c.reset(frame)
		return
	}
	if c.framer == nil {
		var err error
		c.framer, err = spdy.NewFramerWithOptions(nil, &c.unread, spdy.WithMaxControlFramePayloadSize(maxControl),
			spdy.WithMaxHeaderCount(maxHeaders), spdy.WithMaxHeaderFieldSize(maxHeaderBytes))
		if c.lost = err != nil; c.lost {
			return
		}
	}
	// The headers of each kind of frame change the state of the compression.
	c.unread.Write(frame)
	read, err := c.framer.ReadFrame()
	if c.lost = err != nil || c.unread.Len() > 0; c.lost {
		return
	}
	if syn, ok := read.(*spdy.SynStreamFrame); ok {
		id := uint32(syn.StreamId)
		if id <= c.last || len(c.streams) >= maxStreams {
			c.lost = true
			return
		}
		c.last = id
		c.streams[id] = syn.Headers.Get("streamtype")
		c.order = append(c.order, id)
		if c.kinds != nil {
			c.lost = len(c.kinds) >= maxStreams
			c.kinds[id] = c.streams[id]
		}
	}
}

func (c *spdyConn) clusterFrame(kind spdy.ControlFrameType, frame []byte) {
	switch {
	case kind == spdy.TypeRstStream:
		c.reset(frame)
	case kind == spdy.TypeSynReply && frame[4]&flagFin != 0 && len(frame) >= spdyHeader+4:
		c.forget(binary.BigEndian.Uint32(frame[spdyHeader:]))
	}
}

func (c *spdyConn) reset(frame []byte) {
	if len(frame) >= spdyHeader+4 {
		c.forget(binary.BigEndian.Uint32(frame[spdyHeader:]))
	}
}

func (c *spdyConn) forget(id uint32) {
	id &= 0x7fffffff
	delete(c.streams, id)
	// The oldest are as a rule the first to end.
	for len(c.order) > 0 {
		if _, open := c.streams[c.order[0]]; open {
			break
		}
		c.order = c.order[1:]
	}
	if len(c.order) > 2*maxStreams {
		c.lost = true
	}
}

// farewell ends all streams, those for errors with a message.
func (c *spdyConn) farewell(message []byte) (all []byte) {
	for _, errors := range []bool{true, false} {
		for _, id := range c.order {
			kind, open := c.streams[id]
			switch {
			case !open || (kind == "error") != errors:
			case errors:
				all = appendData(all, id, message)
			default:
				all = appendData(all, id, nil)
			}
		}
	}
	return all
}

// appendData appends the last data frame of a stream.
func appendData(to []byte, id uint32, data []byte) []byte {
	to = binary.BigEndian.AppendUint32(to, id)
	to = binary.BigEndian.AppendUint32(to, flagFin<<24|uint32(len(data)))
	return append(to, data...)
}
