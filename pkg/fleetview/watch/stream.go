package watch

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// errEnded says that the client's stream has ended, so that members' streams end too.
var errEnded = errors.New("the watch has ended")

// annotationInitialEnd marks the bookmark behind the initial objects (KEP-3157).
const annotationInitialEnd = "k8s.io/initial-events-end"

// stream is one watch of a client. Members write events to its queue, and the client's
// goroutine takes them out.
type stream struct {
	o      Options
	form   form
	cancel context.CancelFunc
	record *record
	// wake has an element when there is something in the queue.
	wake    chan struct{}
	running sync.WaitGroup

	mu sync.Mutex
	// emptied is signalled when the queue has been emptied, the kind of the objects is known or
	// the stream has ended.
	emptied sync.Cond
	queue   []byte
	ended   bool
	// last is the time of the newest event, stepped that of the newest step in record.
	last, stepped int64
	// news says that a position has changed since the newest event.
	news bool
	// open counts the members of which the client may have a part only.
	open int
	awaited
	// remembered counts the objects that the client has.
	remembered int
	// members are those of the view now, with their refusals.
	members map[*member]*fault.Fault
	// began says that the answer has, and cause is why the stream has ended, if it failed.
	began bool
	cause *metav1.Status
	// of is what the objects are, as soon as it is known. doubt is set while objects wait for
	// that, and trusts says that they have waited for long.
	of     metav1.TypeMeta
	doubt  *time.Timer
	trusts bool
}

func newStream(o Options, form form, cancel context.CancelFunc, start version.Version, versions map[string]string) *stream {
	s := &stream{o: o, form: form, cancel: cancel, wake: make(chan struct{}, 1), members: map[*member]*fault.Fault{}, last: start.Time, stepped: start.Time, of: form.media().of}
	s.emptied.L = &s.mu
	s.record = o.Positions.begin(o.Owner, o.Clock.Replica, start, versions)
	return s
}

// emit adds an event of a member to the queue, and waits for room first. While it holds the
// stream it calls shown, which notes what the client has from then on.
func (s *stream) emit(m *member, e event, shown func(time int64)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := typeOf(e.key)
	for (len(s.queue) >= queueSize || s.undecided(m, of)) && !s.ended {
		m.begun(nil) // the queue is emptied once the answer has begun
		s.emptied.Wait()
	}
	if s.ended {
		return errEnded
	}
	if err := s.fits(of); err != nil {
		return err
	}
	if s.queue == nil {
		s.queue = *queues.Get().(*[]byte)
	}
	m.now = s.o.Clock.Next()
	queue, err := m.source.append(s.queue, e)
	if err != nil {
		return err
	}
	s.queue = queue
	s.last, s.news = m.now, false
	shown(m.now)
	s.signal()
	return nil
}

func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// step records a change of a member's position at a time. The caller holds mu.
func (s *stream) step(at int64, uid, memberVersion string) {
	s.stepped = at
	s.o.Positions.step(s.record, step{time: at, replica: s.o.Clock.Replica, uid: uid, member: version.OfMember(memberVersion), open: s.open > 0})
}

// settle records a change of a member's position behind the events that were queued. The
// caller holds mu.
func (s *stream) settle(uid, memberVersion string) {
	at := s.last
	if at <= s.stepped {
		at = s.o.Clock.Next()
		s.news = true
	}
	s.step(at, uid, memberVersion)
}

// mark adds a bookmark to the queue, if it is known what the objects are. It does not wait
// for room. The caller holds mu.
func (s *stream) mark(annotations map[string]string) {
	if s.ended || s.of.Kind == "" {
		return
	}
	at := s.o.Clock.Now()
	object := &metav1.PartialObjectMetadata{TypeMeta: s.of}
	lacking := join(s.lacking())
	if lacking != "" {
		annotations = maps.Clone(annotations)
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[AnnotationMissing] = lacking
	}
	object.ResourceVersion, object.Annotations = at.String(), annotations
	queue, err := s.form.appendOwn(s.queue, bookmark, object)
	if err != nil {
		return // the next one may be possible
	}
	s.queue, s.told = queue, lacking
	s.last, s.news = at.Time, false
	s.step(at.Time, "", "")
	s.signal()
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

// close ends the stream for members. The caller holds mu.
func (s *stream) close() {
	s.ended = true
	if s.doubt != nil {
		s.doubt.Stop()
	}
	s.cancel()
	s.emptied.Broadcast()
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
	if cap(whole) >= eventBuffer && cap(whole) <= keptBuffer {
		queues.Put(&whole)
	}
	return ended
}

// queues are queues that were written. As a rule a queue has one event, and another one
// follows soon.
var queues = sync.Pool{New: func() any { queue := make([]byte, 0, eventBuffer); return &queue }}

// stop ends the stream for members.
func (s *stream) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close()
}
