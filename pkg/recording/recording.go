package recording

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxBuffered is how much of a recording waits for the volume, and eventCost what an
	// event counts besides its bytes.
	maxBuffered = 256 << 10
	eventCost   = 32
	// mergeWithin is how close pieces of a stream must be to be one event.
	mergeWithin = time.Millisecond
	// heldUp is how long a stream waits for the volume if recordings fail open.
	heldUp = time.Second
	// maxResize is the longest message about the size of a terminal.
	maxResize = 256
	// maxEvent is how many bytes are in one event, and endReserve what of MaxFile is for the end.
	maxEvent, endReserve = 64 << 10, 1 << 10
)

// stoppedBecause begins the end of a file whose session may have gone on.
const stoppedBecause = "not recorded any more: "

// piece is a part of a stream that waits to be written.
type piece struct {
	at     time.Duration
	stream Stream
	size   int
}

// Recording is one file that is being written. Its methods may be called at the same time.
type Recording struct {
	to   sink
	path string
	// failClosed and maxFile are those of Options.
	failClosed bool
	maxFile    int64
	lostBytes  prometheus.Counter
	began      time.Time
	// failed is called once when no more is recorded, and done when it is written.
	failed func(error)
	done   func(*Recording)

	mu     sync.Mutex
	pieces []piece
	bytes  []byte
	// lost are bytes that no event tells of yet, and missing all that are not in the file.
	lost    [streams]int64
	missing int64
	// size is what came of a terminal's size.
	size []byte
	err  error
	// closed says that no more comes, and why the session has ended; discard that the file is to go.
	closed, discard bool
	// told says that failed was called.
	told bool
	// stopped says that the session may go on without it, and slow that it is of no use to wait for
	// the volume.
	stopped, slow bool
	why           string
	// end is when the last event was.
	end time.Duration
	// writing is since when the volume is writing; zero while it is not.
	writing time.Time
	// more wakes what writes, and room who waits for it.
	more chan struct{}
	room chan struct{}

	// The following is of the goroutine that writes.
	encoder encoder
	lines   []byte
	written int64
}

// Path is where the file is, below the folder.
func (r *Recording) Path() string { return r.path }

// Add adds bytes of a stream.
func (r *Recording) Add(s Stream, p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed && !r.stopped || len(p) == 0 {
		return
	}
	// Bytes behind lost ones come behind the event that says so.
	full := !r.failClosed && (r.lost != [streams]int64{} || r.buffered()+len(p) > maxBuffered)
	if r.err != nil || r.stopped || full {
		if s != resize {
			r.lose(s, len(p))
		}
		return
	}
	at := time.Since(r.began)
	if last := len(r.pieces) - 1; last >= 0 && s != resize && r.pieces[last].stream == s && at-r.pieces[last].at < mergeWithin {
		r.pieces[last].size += len(p)
	} else {
		r.pieces = append(r.pieces, piece{at, s, len(p)})
	}
	r.bytes = append(r.bytes, p...)
	r.wake()
}

// AddSize adds what a client sends about the size of its terminal, in pieces.
func (r *Recording) AddSize(p []byte) {
	var sizes [][]byte
	r.mu.Lock()
	for _, c := range p {
		if r.size = append(r.size, c); c == '}' {
			sizes, r.size = append(sizes, r.size), nil
		} else if len(r.size) >= maxResize {
			r.size = r.size[:0]
		}
	}
	r.mu.Unlock()
	for _, message := range sizes {
		var size struct{ Width, Height uint16 }
		if json.Unmarshal(message, &size) == nil && size.Width > 0 && size.Height > 0 {
			r.Add(resize, fmt.Appendf(nil, "%dx%d", size.Width, size.Height))
		}
	}
}

// buffered is what the buffer has. The caller holds mu.
func (r *Recording) buffered() int { return len(r.bytes) + len(r.pieces)*eventCost }

// wake wakes what writes. The caller holds mu.
func (r *Recording) wake() {
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// Room returns when there is room in the buffer, and when the recording has ended. If
// recordings fail open it waits for a second, and not again until the volume has taken something.
func (r *Recording) Room() {
	var late <-chan time.Time
	for {
		r.mu.Lock()
		if r.buffered() <= maxBuffered/2 || r.err != nil || r.closed || r.slow {
			r.mu.Unlock()
			return
		}
		if r.room == nil {
			r.room = make(chan struct{})
		}
		room := r.room
		r.mu.Unlock()
		if late == nil && !r.failClosed {
			timer := time.NewTimer(heldUp)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-room:
		case <-late:
			r.mu.Lock()
			r.slow = true
			r.mu.Unlock()
		}
	}
}

// free wakes who waits for room. The caller holds mu.
func (r *Recording) free() {
	if r.room != nil {
		close(r.room)
		r.room = nil
	}
}

// Close ends the recording. why is in the file. It does not wait for the volume.
func (r *Recording) Close(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.close(why)
}

// Discard removes the file, for a session that has not begun.
func (r *Recording) Discard() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.discard = !r.closed
	r.close("")
}

// Stop ends the recording of a session that cannot be recorded any more.
func (r *Recording) Stop(err error) {
	r.mu.Lock()
	open := !r.closed && r.err == nil
	if open {
		r.stopped, r.told = true, true
		r.close(stoppedBecause + err.Error())
	}
	r.mu.Unlock()
	if open {
		r.failed(err)
	}
}

// close is Close for a caller who holds mu.
func (r *Recording) close(why string) {
	if r.closed {
		return
	}
	r.closed, r.why, r.end = true, why, time.Since(r.began)
	r.free()
	r.wake()
}

// fail ends the recording because of the volume. The buffer is lost. Writers that wait for
// room go on when the failure was told, so that a session that must be recorded shows nothing more.
func (r *Recording) fail(err error) {
	r.mu.Lock()
	first := !r.told && !r.closed
	if first {
		r.told, r.end = true, time.Since(r.began)
	}
	r.mu.Unlock()
	if first {
		r.failed(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if first {
		r.err = err
	}
	r.free()
	r.wake()
}

// lose counts bytes that are not in the file. The caller holds mu.
func (r *Recording) lose(s Stream, n int) {
	r.lost[s] += int64(n)
	r.missing += int64(n)
	r.lostBytes.Add(float64(n))
}

// Lost returns how many bytes of output and input are not in the file, as far as is known now.
func (r *Recording) Lost() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missing
}

// stalled reports whether the volume has been writing for too long.
func (r *Recording) stalled(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.writing.IsZero() && now.Sub(r.writing) >= stalledAfter
}

// run writes until the recording is closed or has failed.
func (r *Recording) run() {
	defer r.done(r)
	var batch batch
	for range r.more {
		err := r.next(&batch)
		if err == nil {
			if err = r.write(&batch); err != nil {
				r.fail(err)
			}
		}
		if ended := r.wrote(&batch, err); ended {
			r.finish(err)
			return
		}
	}
}

// batch is what was in the buffer.
type batch struct {
	pieces []piece
	bytes  []byte
	lost   [streams]int64
}

// next takes what is in the buffer. It returns the error of a recording that has failed.
func (r *Recording) next(b *batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pieces, b.pieces = b.pieces[:0], r.pieces
	r.bytes, b.bytes = b.bytes[:0], r.bytes
	r.lost, b.lost = [streams]int64{}, r.lost
	r.writing, r.slow = time.Now(), false
	r.free()
	return r.err
}

// wrote ends the writing of a batch. It reports whether that was the last one.
func (r *Recording) wrote(b *batch, err error) (last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing = time.Time{}
	if err != nil {
		for s, n := range b.lost {
			r.lost[s] += n
		}
		for _, p := range slices.Concat(b.pieces, r.pieces) {
			if p.stream != resize {
				r.lose(p.stream, p.size)
			}
		}
		r.pieces, r.bytes = nil, nil
		if r.err == nil {
			r.err = err // what is added now is lost at once
		}
		return true
	}
	if r.closed && len(r.pieces) > 0 {
		r.wake()
	}
	return r.closed && len(r.pieces) == 0
}

// write writes a batch.
func (r *Recording) write(b *batch) error {
	raw := b.bytes
	r.lines = r.lines[:0]
	for _, p := range b.pieces {
		for size := p.size; size > 0; {
			n := min(size, maxEvent)
			r.lines = r.encoder.appendEvent(r.lines, p.at, p.stream, raw[:n])
			raw, size = raw[n:], size-n
		}
	}
	r.appendLost(b.lost, time.Since(r.began))
	return r.flush(r.maxFile - endReserve)
}

// appendLost appends how many bytes are not in the file.
func (r *Recording) appendLost(lost [streams]int64, at time.Duration) {
	for s, n := range lost {
		if n > 0 {
			r.lines = appendNote(r.lines, at, codeLost, fmt.Sprintf("%s %d", streamNames[s], n))
		}
	}
}

// flush writes lines to the file, if that does not become larger than limit.
func (r *Recording) flush(limit int64) error {
	if len(r.lines) == 0 {
		return nil
	}
	if r.written+int64(len(r.lines)) > limit {
		return ErrTooLong
	}
	n, err := r.to.Write(r.lines)
	r.written += int64(n)
	if r.lines = r.lines[:0]; cap(r.lines) > maxBuffered {
		r.lines = nil
	}
	return err
}

// notBegun ends what cannot be removed, of a session that has not begun.
const notBegun = "the session has not begun"

// finish ends the recording. A step that failed may fail again.
func (r *Recording) finish(failed error) {
	r.mu.Lock()
	why, end, discard, lost := r.why, r.end, r.discard && failed == nil, r.lost
	r.mu.Unlock()
	if discard {
		if r.to.discard() {
			return
		}
		why = notBegun
	}
	if failed != nil {
		why = stoppedBecause + failed.Error()
	}
	r.lines = r.encoder.appendTails(r.lines[:0], end)
	r.appendLost(lost, end)
	r.lines = appendNote(r.lines, end, codeEnd, why)
	err := r.flush(math.MaxInt64) // without it the recording is cut, which readers say
	if ended := r.to.close(); err == nil {
		err = ended
	}
	if failed == nil {
		failed = err
	}
	r.mu.Lock()
	tell := failed != nil && !r.told && !discard
	r.told = true
	r.mu.Unlock()
	if tell {
		r.failed(failed)
	}
}
