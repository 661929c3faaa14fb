package merge

import (
	"bytes"
	"fmt"
	"strings"
)

// appendObject appends an object with its metadata edited.
func (e *edit) appendObject(dst []byte, o Item) ([]byte, error) {
	m := o.members()
	start := len(dst)
	dst, err := e.appendWalked(dst, &m, 0)
	if err == nil {
		err = m.end()
	}
	if err != nil {
		return dst[:start], err
	}
	return append(dst, o.json[m.Next:]...), nil
}

// appendWalked appends the object that m walks, with its metadata edited. Its text begins
// at an index of m's data. After an error dst is as before.
func (e *edit) appendWalked(dst []byte, m *members, begin int) ([]byte, error) {
	start, copied, open := len(dst), begin, m.Next
	seen, twins := false, false
	for m.More() {
		switch {
		case string(m.Key) == "metadata":
			if m.once(&seen) {
				dst = append(dst, m.data[copied:m.Value]...)
				dst = e.appendMetadata(dst, m)
				copied = m.Next
			}
		case e.sets() && twin(m.Key, "metadata"):
			twins = true
			m.skip()
		default:
			m.skip()
		}
	}
	if m.Err != nil {
		return dst[:start], m.Err
	}
	if twins {
		object, err := without(m.data[begin:m.Next], "metadata")
		if err != nil {
			return dst[:start], err
		}
		return e.appendObject(dst[:start], NewItem(object))
	}
	if !seen && e.sets() && len(e.annotations) > 0 {
		dst = append(dst, m.data[begin:open]...)
		dst = append(dst, `"metadata":{`...)
		dst = append(e.appendAnnotations(dst), '}')
		if m.count > 0 {
			dst = append(dst, ',')
		}
		copied = open
	}
	return append(dst, m.data[copied:m.Next]...), nil
}

// appendMetadata appends the edited value of m's member, and moves m behind the member.
func (e *edit) appendMetadata(dst []byte, m *members) []byte {
	if m.data[m.Value] == 'n' {
		null := m.skip()
		if !e.sets() {
			return append(dst, null...)
		}
		return append(e.appendAnnotations(append(dst, '{')), '}')
	}
	var annotations, name, version bool
	in := m.inner()
	dst = append(dst, '{')
	for in.More() {
		switch string(in.Key) {
		case "annotations":
			if in.once(&annotations) {
				dst = e.appendAnnotated(dst, &in)
			}
		case "name":
			if in.once(&name) {
				dst = e.appendName(dst, &in)
			}
		case "namespace":
			dst = e.appendNamespace(dst, &in)
		case "ownerReferences":
			dst = e.appendOther(dst, &in, owners, !e.sets() || e.qualify)
		case "labels":
			dst = e.appendOther(dst, &in, labels, !e.sets())
		case "resourceVersion":
			if in.once(&version) {
				dst = e.appendVersion(dst, &in)
			}
		default:
			in.skip()
			if in.Err == nil && (!e.sets() || !isTwin(in.Key, e.names())) {
				dst = appendMember(dst, in.data[in.start:in.Next])
			}
		}
	}
	if in.Err != nil {
		m.fail(fmt.Errorf("reading metadata: %w", in.Err))
		return dst
	}
	if !annotations && e.sets() && len(e.annotations) > 0 {
		dst = e.appendAnnotations(appendComma(dst))
	}
	m.Next = in.Next
	return append(dst, '}')
}

// appendName appends the member metadata.name.
func (e *edit) appendName(dst []byte, m *members) []byte {
	raw, name := m.text()
	if m.Err != nil {
		return dst
	}
	dst = appendMember(dst, m.data[m.start:m.Value])
	return e.appendNameText(dst, raw, name)
}

// appendNameText appends a name's JSON text, which is raw and says name.
func (e *edit) appendNameText(dst, raw []byte, name string) []byte {
	if name == "" {
		return append(dst, raw...)
	}
	if e.sets() {
		if e.qualifies(name) {
			return appendSuffixed(dst, raw, "@"+e.cluster)
		}
	} else if plain := e.plainName(name); plain != name {
		return appendQuoted(dst, plain)
	}
	return append(dst, raw...)
}

// appendNamespace appends the member metadata.namespace.
func (e *edit) appendNamespace(dst []byte, m *members) []byte {
	if e.sets() && !e.qualifyNamespace {
		if value := m.skip(); m.Err == nil && !bytes.ContainsAny(value, `@\`) {
			return appendMember(dst, m.data[m.start:m.Next])
		}
	}
	raw, namespace := m.text()
	if e.sets() && strings.IndexByte(namespace, '@') >= 0 {
		m.fail(misleadingNamespace(namespace))
	}
	if m.Err != nil {
		return dst
	}
	dst = appendMember(dst, m.data[m.start:m.Value])
	if e.sets() && e.qualifyNamespace && namespace != "" {
		return appendSuffixed(dst, raw, "@"+e.cluster)
	}
	if plain := e.plain(namespace); plain != namespace {
		return appendQuoted(dst, plain)
	}
	return append(dst, raw...)
}

// misleadingNamespace is the error of a namespace that cannot be one, and that would lead
// clients to another cluster.
func misleadingNamespace(namespace string) error {
	return fmt.Errorf("reading metadata: namespace %q has an @", namespace)
}

// appendOther appends another member of metadata, edited or as it is.
func (e *edit) appendOther(dst []byte, m *members, what what, edited bool) []byte {
	value := m.skip()
	if m.Err != nil {
		return dst
	}
	if !edited {
		return appendMember(dst, m.data[m.start:m.Next])
	}
	start := len(dst)
	dst, kept, err := e.appendPlace(appendMember(dst, m.data[m.start:m.Value]), value, what)
	if err != nil {
		m.fail(err)
	}
	if !kept {
		return dst[:start]
	}
	return dst
}

// appendVersion appends the member resourceVersion of metadata or preconditions.
func (e *edit) appendVersion(dst []byte, m *members) []byte {
	raw, version := m.text()
	if m.Err != nil {
		return dst
	}
	dst = appendMember(dst, m.data[m.start:m.Value])
	if version == "" {
		return append(dst, raw...)
	}
	translated, err := e.version(version)
	if err != nil {
		m.fail(fmt.Errorf("translating resourceVersion %q: %w", version, err))
		return dst
	}
	return appendQuoted(dst, translated)
}

// appendAnnotated appends the member metadata.annotations. If removing ours leaves it empty,
// it is left out: an empty map would make whoever applies it an owner of it.
func (e *edit) appendAnnotated(dst []byte, m *members) []byte {
	start := len(dst)
	dst = appendMember(dst, m.data[m.start:m.Value])
	dst, removed, left := e.appendAnnotationMap(dst, m)
	if !e.sets() && removed && !left {
		return dst[:start]
	}
	return dst
}

// appendAnnotationMap appends the annotations that are the value of m's member. It reports
// whether ours were among them, and whether others were.
func (e *edit) appendAnnotationMap(dst []byte, m *members) (_ []byte, removed, left bool) {
	if m.data[m.Value] == 'n' {
		null := m.skip()
		if !e.sets() {
			return append(dst, null...), false, true
		}
		return append(e.appendPairs(append(dst, '{')), '}'), false, false
	}
	in := Walk(m.data, m.Value)
	dst = append(dst, '{')
	if e.sets() {
		dst = e.appendPairs(dst)
	}
	for in.More() {
		in.skip()
		switch {
		case in.Err != nil:
		case e.ours(in.Key):
			removed = true
			e.mention(in.Key, in.data[in.Value:in.Next], true)
		case string(in.Key) == appliedAnnotation && e.label != "":
			left = true
			dst = e.appendApplied(appendMember(dst, in.data[in.start:in.Value]), in.data[in.Value:in.Next])
		default:
			left = true
			dst = appendMember(dst, in.data[in.start:in.Next])
		}
	}
	if in.Err != nil {
		m.fail(fmt.Errorf("reading annotations: %w", in.Err))
	}
	m.Next = in.Next
	return append(dst, '}'), removed, left
}

// appendAnnotations appends a member "annotations" that has ours.
func (e *edit) appendAnnotations(dst []byte) []byte {
	return append(e.appendPairs(append(dst, `"annotations":{`...)), '}')
}

// appendPairs appends our annotations as members.
func (e *edit) appendPairs(dst []byte) []byte {
	for _, name := range e.annotations {
		dst = appendQuoted(appendComma(dst), name)
		dst = appendQuoted(append(dst, ':'), e.cluster)
	}
	return dst
}

// appliedAnnotation has, as JSON, the object that kubectl apply was given. kubectl compares it
// with the one that it is given the next time.
const appliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"

// appendApplied appends the annotation's value: on the way to the view with the name that the
// object has there, on the way back as it would be without the view. Fields that are not
// understood stay as they are.
func (e *edit) appendApplied(dst, value []byte) []byte {
	if value[0] != '"' || e.note != nil {
		return append(dst, value...)
	}
	applied, err := Unquote(value)
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

// Rewriter turns objects of one cluster into objects of a view. It sets annotations to the
// cluster's name, whatever the member says there, and translates metadata.resourceVersion.
// Its methods are safe for concurrent use. Their output must not overlap their input.
type Rewriter struct {
	// Cluster is the name of the cluster.
	Cluster string
	// Annotations are the keys that get the cluster's name.
	Annotations []string
	// Qualified makes metadata.name, and the names of owners, NAME@CLUSTER.
	Qualified bool
	// Misleading reports whether a name leads to a cluster as it is. It is qualified then in any
	// case, because no member names objects of another one; nil if none does.
	Misleading func(name string) bool
	// QualifiedNamespace makes metadata.namespace NAMESPACE@CLUSTER.
	QualifiedNamespace bool
	// Places are where selectors get Label with the cluster's name, if they are not empty, in
	// JSON. It costs a second look at the object. With Label, what kubectl has applied is called
	// as the object is, too.
	Places Places
	Label  string
	// Version translates metadata.resourceVersion, which is not empty. Objects without one
	// stay without.
	Version func(member string) string
}

// AppendJSON appends an object in JSON as it is in the view. Apart from its metadata the
// object stays byte for byte. Keys that decoders could mistake for those that Rewriter sets
// are left out. An error says that the object is malformed; dst is as before then.
func (w *Rewriter) AppendJSON(dst, object []byte) ([]byte, error) {
	return w.AppendItem(dst, NewItem(object))
}

// AppendItem is AppendJSON for an Item.
func (w *Rewriter) AppendItem(dst []byte, object Item) ([]byte, error) {
	e := w.edit()
	if len(w.Places) == 0 {
		return e.appendObject(dst, object)
	}
	rewritten, err := e.appendObject(nil, object)
	if err != nil {
		return dst, err
	}
	return e.appendPlaces(dst, rewritten, w.Places)
}

func (w *Rewriter) edit() edit {
	return edit{cluster: w.Cluster, annotations: w.Annotations, label: w.Label, places: w.Places, qualify: w.Qualified, misleading: w.Misleading, qualifyNamespace: w.QualifiedNamespace, toView: w.Version}
}
