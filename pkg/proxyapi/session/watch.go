package session

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// Events follows the events in the answer to a watch.
type Events struct {
	form eventsForm
	// last is the byte before.
	last byte
	// head is the length of a protobuf event, of which have bytes came, and left those of the
	// event that are to come.
	head       [4]byte
	have, left int
}

// eventsForm is how the events of a watch are separated.
type eventsForm int

const (
	// lineEvents are JSON.
	lineEvents eventsForm = iota + 1
	// frameEvents are protobuf, each behind its length.
	frameEvents
)

// EventsOf returns the Events of an answer with a header.
func EventsOf(header http.Header) Events {
	e := Events{last: '\n'}
	switch kind := header.Get("Content-Type"); {
	case header.Get("Content-Encoding") != "":
	case strings.HasPrefix(kind, "application/json"):
		e.form = lineEvents
	case strings.HasPrefix(kind, "application/vnd.kubernetes.protobuf"):
		e.form = frameEvents
	}
	return e
}

// Follow follows a part of the answer.
func (e *Events) Follow(p []byte) {
	if len(p) > 0 {
		e.last = p[len(p)-1]
	}
	for e.form == frameEvents && len(p) > 0 {
		if e.have < len(e.head) {
			n := copy(e.head[e.have:], p)
			e.have, p = e.have+n, p[n:]
			e.left = int(binary.BigEndian.Uint32(e.head[:]))
		}
		if e.have == len(e.head) {
			n := min(e.left, len(p))
			if e.left, p = e.left-n, p[n:]; e.left == 0 {
				e.have = 0
			}
		}
	}
}

// Whole reports whether the last event is whole. Of an answer in an unknown form or encoding that
// is not known.
func (e *Events) Whole() bool {
	return e.form == lineEvents && e.last == '\n' || e.form == frameEvents && e.have == 0
}

// sessionWatch is the answer to a watch of a view.
type sessionWatch struct {
	http.ResponseWriter
	session *Session
	events  Events
}

// Watch makes a session of a watch of a view, which begins with the context that it returns.
// leave must be called when the watch has ended, by the goroutine that writes.
func (s *Registry) Watch(ctx context.Context, w http.ResponseWriter, rs *scope.Scope) (_ http.ResponseWriter, _ context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	one := s.Describe(rs, kindViewWatch)
	one.end = func() { cancel(ErrEnded) }
	watched := &sessionWatch{ResponseWriter: w, session: one}
	remove := s.Join(one)
	return watched, ctx, func() {
		remove()
		cancel(nil)
		if one.Why.Load() != nil {
			watched.say()
		}
	}
}

// Unwrap is for http.ResponseController.
func (w *sessionWatch) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *sessionWatch) WriteHeader(code int) {
	if code == http.StatusOK {
		w.events = EventsOf(w.Header())
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *sessionWatch) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.session.out.Add(int64(n))
	w.events.Follow(p[:n])
	return n, err
}

// say adds an ERROR event, if the last one is whole.
func (w *sessionWatch) say() {
	if !w.events.Whole() {
		return
	}
	event := endedEvent()
	if w.events.form == frameEvents {
		event = endedFrame()
	}
	control := http.NewResponseController(w.ResponseWriter)
	_ = control.SetWriteDeadline(time.Now().Add(farewellTimeout)) // if it cannot be set, the connection's end ends the write
	if _, err := w.Write(event); err == nil {
		_ = control.Flush() // the user may be gone
	}
}

// endedEvent is the last event of a watch whose session was ended.
func endedEvent() []byte {
	object, err := json.Marshal(EndedStatus())
	if err != nil {
		return nil // a Status has nothing that cannot be encoded
	}
	return fmt.Appendf(nil, "{\"type\":\"ERROR\",\"object\":%s}\n", object)
}

// endedFrame is the same in protobuf, behind its length.
func endedFrame() []byte {
	status := EndedStatus()
	message, err := status.Marshal()
	if err != nil {
		return nil // a Status has nothing that cannot be encoded
	}
	const head = 4
	frame := merge.AppendProtobufEvent(make([]byte, head), string(watch.Error), merge.AppendProtobufDocument(nil, status.TypeMeta, message))
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-head))
	return frame
}
