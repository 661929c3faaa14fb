package fleetview

import (
	"io"
	"sync/atomic"
)

const (
	// aheadBytes are read of the answers to one request before it is their turn, and
	// aheadOfMember of one of them.
	aheadBytes    = 4 << 20
	aheadOfMember = 1 << 20
	// aheadRead is read at a time.
	aheadRead = 32 << 10
)

// ahead is the body of a member's answer. Once it was begun it reads on in the background
// until somebody reads it, so that members send while another one's turn is, and what is
// under way from all of them arrives at the same time.
type ahead struct {
	io.ReadCloser
	// buffer is what was read, of which buffer[at:] was not used yet, and err how that
	// ended. While done is not closed they are the background's.
	buffer []byte
	at     int
	err    error
	// done is nil before begin.
	done chan struct{}
	stop atomic.Bool
}

// begin reads up to so many bytes.
func (a *ahead) begin(most int) {
	if most < aheadRead {
		return
	}
	a.done = make(chan struct{})
	go func() {
		defer close(a.done)
		for len(a.buffer) < most && a.err == nil && !a.stop.Load() {
			if cap(a.buffer)-len(a.buffer) < aheadRead {
				a.buffer = append(make([]byte, 0, min(most, 2*cap(a.buffer)+aheadRead)), a.buffer...)
			}
			var n int
			n, a.err = a.ReadCloser.Read(a.buffer[len(a.buffer):cap(a.buffer)])
			a.buffer = a.buffer[:len(a.buffer)+n]
		}
	}()
}

// Read returns what was read ahead, and then what comes.
func (a *ahead) Read(p []byte) (int, error) {
	if a.done == nil {
		return a.ReadCloser.Read(p)
	}
	a.stop.Store(true)
	<-a.done
	if a.at < len(a.buffer) {
		n := copy(p, a.buffer[a.at:])
		if a.at += n; a.at == len(a.buffer) {
			a.buffer, a.at = nil, 0
		}
		return n, nil
	}
	if a.err != nil {
		return 0, a.err
	}
	return a.ReadCloser.Read(p)
}
