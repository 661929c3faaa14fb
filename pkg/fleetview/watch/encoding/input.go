package encoding

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

const (
	// idleBuffer is what an input has while nothing arrives: there is one for each stream
	// and member.
	idleBuffer = 256
	// eventBuffer is what it borrows for events, and keptBuffer the largest that is kept
	// for others.
	eventBuffer = 16 << 10
	keptBuffer  = 64 << 10
)

// MaxEvent is the size of the largest event or object that a member may send.
const MaxEvent = 16 << 20

var errTooLarge = fmt.Errorf("reading an event: it has more than %d bytes", MaxEvent)

// input reads the events of one member. It has a buffer while a part of an event is there.
type input struct {
	from  io.Reader
	first [idleBuffer]byte
	// buffer.data[at:] was not used yet; buffer is nil if there is nothing.
	buffer *buffer
	at     int
}

// buffer is what reading an event takes.
type buffer struct {
	data    []byte
	indexer merge.Indexer
}

var buffers = sync.Pool{New: func() any { return &buffer{data: make([]byte, 0, eventBuffer)} }}

// unread is what has arrived and was not used.
func (in *input) unread() []byte {
	if in.buffer == nil {
		return nil
	}
	return in.buffer.data[in.at:]
}

// use says that n bytes were used. They are valid until more is read.
func (in *input) use(n int) { in.at += n }

// release gives the buffer back if all of it was used.
func (in *input) release() {
	if in.buffer == nil || in.at < len(in.buffer.data) {
		return
	}
	if cap(in.buffer.data) <= keptBuffer {
		in.buffer.data = in.buffer.data[:0]
		buffers.Put(in.buffer)
	}
	in.buffer, in.at = nil, 0
}

// fill reads more behind what is unread.
func (in *input) fill() error {
	for range 100 {
		into := in.first[:]
		if in.buffer != nil {
			into = in.room()
		}
		n, err := in.from.Read(into)
		if n > 0 {
			in.keep(into[:n])
			return nil // an error comes again
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// room is where the buffer has room, of which it has some then.
func (in *input) room() []byte {
	b := in.buffer
	if len(b.data) == cap(b.data) || in.at > cap(b.data)/2 {
		unread := b.data[in.at:]
		if len(unread) > cap(b.data)/2 {
			b.data = append(make([]byte, 0, 2*cap(b.data)), unread...)
		} else {
			b.data = append(b.data[:0], unread...)
		}
		in.at = 0
	}
	return b.data[len(b.data):cap(b.data)]
}

// keep takes what was read, which is in first or in the buffer's room.
func (in *input) keep(read []byte) {
	if in.buffer == nil {
		in.buffer, in.at = buffers.Get().(*buffer), 0
	}
	in.buffer.data = append(in.buffer.data, read...)
}

// line returns a line that has more than spaces, without them. Its error is io.EOF if the
// input ends between lines.
func (in *input) line() ([]byte, error) {
	in.release()
	for seen := 0; ; {
		unread := in.unread()
		if end := bytes.IndexByte(unread[seen:], '\n'); end >= 0 {
			in.use(seen + end + 1)
			if line := bytes.TrimSpace(unread[:seen+end]); len(line) > 0 {
				return line, nil
			}
			seen = 0
			in.release()
			continue
		}
		if seen = len(unread); seen > MaxEvent {
			return nil, errTooLarge
		}
		err := in.fill()
		if err == io.EOF && len(bytes.TrimSpace(in.unread())) > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
	}
}
