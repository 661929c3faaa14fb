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
	return append(dst, o.json[m.next:]...), nil
}

// appendWalked appends the object that m walks, with its metadata edited. Its text begins
// at an index of m's data. After an error dst is as before.
func (e *edit) appendWalked(dst []byte, m *members, begin int) ([]byte, error) {
	start, copied, open := len(dst), begin, m.next
	seen, twins := false, false
	for m.more() {
		switch {
		case string(m.key) == "metadata":
			if m.once(&seen) {
				dst = append(dst, m.data[copied:m.value]...)
				dst = e.appendMetadata(dst, m)
				copied = m.next
			}
		case e.sets() && twin(m.key, "metadata"):
			twins = true
			m.skip()
		default:
			m.skip()
		}
	}
	if m.err != nil {
		return dst[:start], m.err
	}
	if twins {
		object, err := without(m.data[begin:m.next], "metadata")
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
	return append(dst, m.data[copied:m.next]...), nil
}

// appendMetadata appends the edited value of m's member, and moves m behind the member.
func (e *edit) appendMetadata(dst []byte, m *members) []byte {
	if m.data[m.value] == 'n' {
		null := m.skip()
		if !e.sets() {
			return append(dst, null...)
		}
		return append(e.appendAnnotations(append(dst, '{')), '}')
	}
	var annotations, name, version bool
	in := m.inner()
	dst = append(dst, '{')
	for in.more() {
		switch string(in.key) {
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
			if in.err == nil && (!e.sets() || !isTwin(in.key, e.names())) {
				dst = appendMember(dst, in.data[in.start:in.next])
			}
		}
	}
	if in.err != nil {
		m.fail(fmt.Errorf("reading metadata: %w", in.err))
		return dst
	}
	if !annotations && e.sets() && len(e.annotations) > 0 {
		dst = e.appendAnnotations(appendComma(dst))
	}
	m.next = in.next
	return append(dst, '}')
}

// appendName appends the member metadata.name.
func (e *edit) appendName(dst []byte, m *members) []byte {
	raw, name := m.text()
	if m.err != nil {
		return dst
	}
	dst = appendMember(dst, m.data[m.start:m.value])
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
		if value := m.skip(); m.err == nil && !bytes.ContainsAny(value, `@\`) {
			return appendMember(dst, m.data[m.start:m.next])
		}
	}
	raw, namespace := m.text()
	if e.sets() && strings.IndexByte(namespace, '@') >= 0 {
		m.fail(misleadingNamespace(namespace))
	}
	if m.err != nil {
		return dst
	}
	dst = appendMember(dst, m.data[m.start:m.value])
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
	if m.err != nil {
		return dst
	}
	if !edited {
		return appendMember(dst, m.data[m.start:m.next])
	}
	start := len(dst)
	dst, kept, err := e.appendPlace(appendMember(dst, m.data[m.start:m.value]), value, what)
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
	if m.err != nil {
		return dst
	}
	dst = appendMember(dst, m.data[m.start:m.value])
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
	dst = appendMember(dst, m.data[m.start:m.value])
	dst, removed, left := e.appendAnnotationMap(dst, m)
	if !e.sets() && removed && !left {
		return dst[:start]
	}
	return dst
}

// appendAnnotationMap appends the annotations that are the value of m's member. It reports
// whether ours were among them, and whether others were.
func (e *edit) appendAnnotationMap(dst []byte, m *members) (_ []byte, removed, left bool) {
	if m.data[m.value] == 'n' {
		null := m.skip()
		if !e.sets() {
			return append(dst, null...), false, true
		}
		return append(e.appendPairs(append(dst, '{')), '}'), false, false
	}
	in := walk(m.data, m.value)
	dst = append(dst, '{')
	if e.sets() {
		dst = e.appendPairs(dst)
	}
	for in.more() {
		in.skip()
		switch {
		case in.err != nil:
		case e.ours(in.key):
			removed = true
			e.mention(in.key, in.data[in.value:in.next], true)
		case string(in.key) == appliedAnnotation && e.label != "":
			left = true
			dst = e.appendApplied(appendMember(dst, in.data[in.start:in.value]), in.data[in.value:in.next])
		default:
			left = true
			dst = appendMember(dst, in.data[in.start:in.next])
		}
	}
	if in.err != nil {
		m.fail(fmt.Errorf("reading annotations: %w", in.err))
	}
	m.next = in.next
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
