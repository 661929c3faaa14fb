package watch

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// markWaiting adds a bookmark while the initial one waits: what is between the client and the
// view may cut off a connection on which nothing comes.
func (s *stream) markWaiting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.Bookmarks && s.initial != nil {
		s.mark(nil)
	}
}

// markNews adds a bookmark if the newest version that the client has is not the newest
// position.
func (s *stream) markNews() {
	s.mu.Lock()
	defer s.mu.Unlock()
	// From a version of which the client has a part only, it could not go on.
	if s.o.Bookmarks && s.news && s.open == 0 && s.initial == nil {
		s.mark(nil)
	}
}

// markLast adds the bookmark that is the last event of the stream.
func (s *stream) markLast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.Bookmarks && s.open == 0 && s.initial == nil {
		s.mark(nil)
	}
}

// write sends the queue to the client until the stream ends.
func (s *stream) write(ctx context.Context, w http.ResponseWriter) {
	var timeout <-chan time.Time
	if s.o.Timeout > 0 {
		timer := time.NewTimer(s.o.Timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	marks, waiting := time.NewTicker(bookmarkEvery), time.NewTicker(waitingEvery)
	defer marks.Stop()
	defer waiting.Stop()
	for orderly := false; !orderly; {
		select {
		case <-ctx.Done():
			s.flush(w) // expire has an event for the client
			return
		case <-timeout:
			orderly = true
		case <-s.o.Draining:
			orderly = true
		case <-marks.C:
			s.markNews()
		case <-waiting.C:
			s.markWaiting()
		case <-s.wake:
		}
		if orderly {
			s.markLast()
		}
		if ended := s.flush(w); ended {
			return
		}
	}
}

// flush writes what is in the queue, and reports whether the stream has ended.
func (s *stream) flush(w http.ResponseWriter) (ended bool) {
	s.mu.Lock()
	queue := s.queue
	s.queue = nil
	ended = s.ended
	s.emptied.Broadcast()
	s.mu.Unlock()
	control := http.NewResponseController(w)
	whole := queue[:0]
	for len(queue) > 0 {
		n := min(len(queue), chunkSize)
		// A client that takes nothing for so long is left: members' streams wait for it.
		stalled := time.AfterFunc(stallTimeout, func() {
			s.stop()
			_ = control.SetWriteDeadline(time.Now()) // if it is not supported, the write ends with the connection
		})
		_, err := w.Write(queue[:n])
		if err == nil && n == len(queue) {
			err = control.Flush()
		}
		if !stalled.Stop() || err != nil {
			return true
		}
		queue = queue[n:]
	}
	if cap(whole) >= queueBuffer && cap(whole) <= keptQueue {
		queues.Put(&whole)
	}
	return ended
}

// queues are queues that were written. As a rule a queue has one event, and another one
// follows soon.
var queues = sync.Pool{New: func() any { queue := make([]byte, 0, queueBuffer); return &queue }}
