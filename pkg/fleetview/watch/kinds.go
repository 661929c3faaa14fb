package watch

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// undecided notes what a member's next object is, and reports whether it must wait until it
// is known what the objects of the stream are. The caller holds mu.
func (s *stream) undecided(m *member, of metav1.TypeMeta) bool {
	if s.says(m, of); s.of.Kind != "" || of.Kind == "" || m.leaving {
		return false
	}
	if s.doubt == nil {
		s.doubt = time.AfterFunc(maxDoubt, s.trust)
	}
	return true
}

// trust ends the wait for members that do not say what their objects are.
func (s *stream) trust() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trusts = true
	s.decide()
}

// says notes what a member's objects are. The caller holds mu.
func (s *stream) says(m *member, of metav1.TypeMeta) {
	if of.Kind == "" || of == m.of {
		return
	}
	m.of = of
	switch {
	case s.form.Media().Table: // rows may be about objects in any form
		s.of = of
		s.endInitial()
	case s.form.Media().Of.Kind == "":
		s.decide()
	}
}

// heard notes that a member's first request has ended, whatever it has said. The caller
// does not hold mu.
func (s *stream) heard(m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.heard = true; s.of.Kind == "" {
		s.decide()
	}
}

// decide says what the objects of the stream are, as soon as that is known: what most
// members' are. A kind that is not likely waits for all members. The caller holds mu.
func (s *stream) decide() {
	var kinds []metav1.TypeMeta
	silent := false
	for m := range s.members {
		kinds = append(kinds, m.of)
		silent = silent || m.of.Kind == "" && !m.heard
	}
	most := merge.Majority(kinds, func(of metav1.TypeMeta) int {
		switch {
		case s.likely(of):
			return 2
		case of == s.of:
			return 1
		}
		return 0
	})
	if most.Kind == "" || most == s.of || silent && !s.trusts && !s.likely(most) {
		return
	}
	s.of = most
	s.emptied.Broadcast()
	s.endInitial()
}

// likely reports whether a kind is likely to be the one that the client wants.
func (s *stream) likely(of metav1.TypeMeta) bool { return s.o.Likely == nil || s.o.Likely(of) }

// fits returns an error for an object of another kind than the stream's: clients would end
// the whole watch because of it. The caller holds mu.
func (s *stream) fits(of metav1.TypeMeta) error {
	if of.Kind == "" || of == s.of || s.form.Media().Table {
		return nil
	}
	return fmt.Errorf("reading an object: it is a %s of %q and not a %s of %q", of.Kind, of.APIVersion, s.of.Kind, s.of.APIVersion)
}
