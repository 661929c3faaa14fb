package watch

import (
	"net/http"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
)

// begin says that the answer has begun.
func (s *stream) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = true
	s.endRefused()
}

// join adds a member.
func (s *stream) join(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[m] = nil
	if s.initial != nil {
		s.initial[m] = true
	}
}

// dismiss says that a member leaves, which ends its waiting.
func (s *stream) dismiss(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.leaving = true
	s.emptied.Broadcast()
}

// drop removes a member.
func (s *stream) drop(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, m)
	if s.initial[m] {
		delete(s.initial, m)
		s.endInitial()
	}
	s.markLess()
}

// accept notes that a member's watch has begun.
func (s *stream) accept(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[m] = nil
}

// refuse notes a refusal that does not go away soon.
func (s *stream) refuse(m *member, f *fault.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[m] = f
	s.endRefused()
}

// endRefused ends a stream that all clusters refuse: no event would ever come. Before the
// answer has begun, beginning says so. The caller holds mu.
func (s *stream) endRefused() {
	if !s.began {
		return
	}
	var first *fault.Fault
	for _, f := range s.members {
		if f == nil {
			return
		}
		// Clusters that do not have such objects say least.
		if first == nil || first.Code == http.StatusNotFound {
			first = f
		}
	}
	if first != nil {
		s.fail(statusOf(first))
	}
}

// emit adds an event of a member to the queue, and waits for room first. While it holds the
// stream it calls shown, which notes what the client has from then on.
func (s *stream) emit(m *member, e encoding.Event, shown func(time int64)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := typeOf(e.Key)
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
	queue, err := m.source.Append(s.queue, e)
	if err != nil {
		return err
	}
	s.queue = queue
	s.last, s.news = m.now, false
	shown(m.now)
	s.signal()
	return nil
}

// lists reports whether the client has a member's objects.
func (s *stream) lists(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.at != ""
}
