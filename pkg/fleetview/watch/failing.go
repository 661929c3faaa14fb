package watch

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
)

// fail ends the stream with an ERROR event. The caller holds mu.
func (s *stream) fail(status *metav1.Status) {
	if s.ended {
		return
	}
	s.cause = status
	// Without the event the stream ends too, and the client's next request says why.
	if queue, err := s.form.appendOwn(s.queue, failed, status); err == nil {
		s.queue = queue
	}
	s.close()
	s.signal()
}

// failure returns why the stream has failed, or nil if it has not.
func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: *s.cause}
}

// expire ends the stream in a way after which the client lists again.
func (s *stream) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(expired())
}

// remember counts objects that the client has got, or has lost. The caller holds mu.
func (s *stream) remember(more int) {
	if s.remembered += more; s.remembered > s.maxObjects() {
		s.fail(s.tooMany())
	}
}

func (s *stream) maxObjects() int {
	if s.o.MaxObjects > 0 {
		return s.o.MaxObjects
	}
	return maxObjects
}

func (s *stream) tooMany() *metav1.Status {
	return gone(fmt.Sprintf("the clusters of the view have more than %d such objects, too many for one watch: watch a namespace, "+
		"select objects by labels, or choose clusters with the field selector metadata.cluster", s.maxObjects()))
}

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
