package watch

import (
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
)

// await begins to wait for the initial events of the members that have joined.
func (s *stream) await() (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Now()
	if s.initial == nil {
		if !s.o.anew() { // the client may have been told at another replica
			s.told = join(s.lacking())
		}
		return func() {}
	}
	overdue := time.AfterFunc(s.o.InformerTimeout, s.expectNobody)
	// A member that sends a little all the time keeps no client from having what others have.
	late := time.AfterFunc(maxInitial, s.arrivedAll)
	s.endInitial()
	return func() {
		overdue.Stop()
		late.Stop()
	}
}

// arrived says that the client has all objects of a member, as of its first answer.
func (s *stream) arrived(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.initial[m] {
		delete(s.initial, m)
		s.endInitial()
	}
	s.markLess()
}

// missed says that a request to a member has failed. The initial bookmark goes on to wait for the
// member: a client that asks again, because its version is too old, deletes what it does
// not get.
func (s *stream) missed(m *member, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.missed, m.sending = true, false
	if s.initial[m] && (s.overdue || s.believes(err)) {
		delete(s.initial, m)
		s.endInitial()
	}
}

// believes reports whether an error says that a member has no objects for the client. The
// caller holds mu.
func (s *stream) believes(err error) bool {
	refused := new(fault.Fault)
	return errors.As(err, &refused) && refused.Believed(s.since)
}

// awaits reports whether the initial bookmark waits for a member.
func (s *stream) awaits(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.initial[m]
}

// expectNobody ends the wait for clusters that do not answer.
func (s *stream) expectNobody() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.overdue = true
	for m := range s.initial {
		if m.missed && !m.sending {
			delete(s.initial, m)
		}
	}
	s.endInitial()
}

// arrivedAll says that the initial bookmark waits for no member any more.
func (s *stream) arrivedAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.overdue = true
	clear(s.initial)
	s.endInitial()
}

// endInitial sends the initial bookmark if it waits for no cluster, and it is known what it
// is about. The caller holds mu.
func (s *stream) endInitial() {
	if s.initial == nil || len(s.initial) > 0 || s.of.Kind == "" {
		return
	}
	if lacking := s.lacking(); s.o.FailWhenUnreachable && len(lacking) > 0 {
		s.fail(unreachable(lacking))
		return
	}
	s.initial = nil
	s.mark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
}

// markLess adds a bookmark if the client has got what the bookmark before has said that it lacks.
// The caller holds mu.
func (s *stream) markLess() {
	if s.o.Bookmarks && s.told != "" && s.initial == nil && s.open == 0 && join(s.lacking()) != s.told {
		s.mark(nil)
	}
}
