package merge

import "bytes"

// appliedAnnotation has, as JSON, the object that kubectl apply was given. kubectl compares it
// with the one that it is given the next time.
const appliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"

// appendApplied appends the annotation's value: on the way to the view with the name that the
// object has there, on the way back as it would be without the view. What is not understood
// stays as it is.
func (e *edit) appendApplied(dst, value []byte) []byte {
	if value[0] != '"' || e.note != nil {
		return append(dst, value...)
	}
	applied, err := unquote(value)
	if err != nil {
		return append(dst, value...)
	}
	inner := *e
	inner.toView = nil
	if e.sets() {
		inner.annotations, inner.label = nil, ""
	} else {
		inner.toMember = func(version string) (string, error) {
			if member, err := e.toMember(version); err == nil {
				return member, nil
			}
			return version, nil
		}
	}
	edited, err := inner.appendObject(nil, NewItem([]byte(applied)))
	if err == nil && !e.sets() {
		edited, err = inner.appendPlaces(nil, edited, e.places)
	}
	if err != nil || bytes.Equal(edited, []byte(applied)) {
		return append(dst, value...)
	}
	return appendQuoted(dst, string(edited))
}
