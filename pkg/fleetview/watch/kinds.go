package watch

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// fits returns an error for an object of another kind than the stream's: clients would end
// the whole watch because of it. The first object decides the kind, until one comes that is
// more likely. The caller holds mu.
func (s *stream) fits(k merge.Key) error {
	of := typeOf(k)
	if of.Kind == "" || s.of.Kind == "" || of == s.of || s.isTable() || s.better(of) {
		return nil
	}
	return fmt.Errorf("reading an object: it is a %s of %q and not a %s of %q", of.Kind, of.APIVersion, s.of.Kind, s.of.APIVersion)
}

// learn notes what the objects are. The caller holds mu.
func (s *stream) learn(of metav1.TypeMeta) {
	if of.Kind == "" || s.of.Kind != "" && of != s.of && !s.isTable() && !s.better(of) {
		return
	}
	s.of = of
	s.endInitial()
}

// better reports whether a kind is more likely to be the one that the client wants than the
// one that is known.
func (s *stream) better(of metav1.TypeMeta) bool {
	return s.o.Likely != nil && s.form.media().of.Kind == "" && s.o.Likely(of) && !s.o.Likely(s.of)
}

// isTable reports whether the objects are rows, which may be about objects in any form.
func (s *stream) isTable() bool {
	_, ok := s.form.(*tableForm)
	return ok
}
