package merge

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// members walks the members of a JSON object, which must be whole. A caller asks more for
// each member, and then skips its value or sets next behind it.
type members struct {
	data []byte
	// key is the member's key, without escapes. data[start:value] is its text with the
	// colon, and the value begins at data[value].
	key          []byte
	start, value int
	// next is where the walk goes on: behind the value, or the end, of the object.
	next  int
	count int
	err   error
	scan  scanner

	// index has the places of the members, if they are known, and level says where in it.
	index *index
	level int
}

// members walks an Item.
func (o Item) members() members {
	m := walk(o.json, 0)
	if o.index != nil && !o.index.irregular {
		m.index = o.index
	}
	return m
}

// inner walks the object that is the member's value.
func (m *members) inner() members {
	in := walk(m.data, m.value)
	if x := m.index; x != nil && m.level < len(x.path) && string(m.key) == x.path[m.level] && len(x.levels[m.level+1]) > 0 {
		in.index, in.level = x, m.level+1
	}
	return in
}

// known moves to the next member whose place is known.
func (m *members) known() bool {
	all := m.index.levels[m.level]
	if m.count == len(all) {
		m.next = skipSpace(m.data, m.next) + 1 // behind the brace
		return false
	}
	at := all[m.count]
	m.key, m.start, m.value = m.data[at.key+1:at.keyEnd-1], at.key, at.value
	m.count++
	return true
}

// walk returns the members of the object at data[i].
func walk(data []byte, i int) members {
	m := members{data: data, next: skipSpace(data, i)}
	switch {
	case m.next >= len(data):
		m.err = errEnd
	case data[m.next] != '{':
		m.err = syntax(data[m.next])
	}
	m.next++
	return m
}

// more reports whether there is another member. It sets err if the object is broken.
func (m *members) more() bool {
	if m.err != nil {
		return false
	}
	if m.index != nil {
		return m.known()
	}
	i := m.skipSpace(m.next)
	if i < len(m.data) && m.data[i] == '}' {
		m.next = i + 1
		return false
	}
	if m.count > 0 {
		i = m.skipSpace(m.expect(i, ','))
	}
	m.start = i
	i = m.expect(i, '"')
	if m.err != nil {
		return false
	}
	end, closed, err := skipString(m.data, i)
	if err != nil || !closed {
		m.fail(err)
		return false
	}
	m.key = m.data[i : end-1]
	if bytes.IndexByte(m.key, '\\') >= 0 {
		name, err := unquote(m.data[i-1 : end])
		if err != nil {
			m.fail(err)
			return false
		}
		m.key = []byte(name)
	}
	m.value = m.skipSpace(m.expect(m.skipSpace(end), ':'))
	m.count++
	return m.err == nil
}

// skipSpace is the function of that name. It sets err if nothing follows.
func (m *members) skipSpace(i int) int {
	i = skipSpace(m.data, i)
	if i >= len(m.data) && m.err == nil {
		m.err = errEnd
	}
	return i
}

// expect returns the index behind c, which must be at data[i].
func (m *members) expect(i int, c byte) int {
	if m.err == nil && m.data[i] != c {
		m.err = syntax(m.data[i])
	}
	return i + 1
}

// fail ends the walk with err, or because the data ended if err is nil.
func (m *members) fail(err error) {
	if err == nil {
		err = errEnd
	}
	if m.err == nil {
		m.err = err
	}
}

// skip moves next behind the member's value and returns the value.
func (m *members) skip() []byte {
	if m.index != nil {
		m.next = m.index.levels[m.level][m.count-1].end
		return m.data[m.value:m.next]
	}
	m.scan.reset()
	next, done, err := m.scan.scan(m.data, m.value)
	if err != nil || !done {
		m.fail(err)
		return nil
	}
	m.next = next
	return m.data[m.value:next]
}

// text skips the member's value, which must be a string or null. It returns the value's
// text with its quotes, and what it says; null says nothing.
func (m *members) text() (raw []byte, s string) {
	raw = m.skip()
	switch {
	case m.err != nil || raw[0] == 'n':
	case raw[0] != '"':
		m.fail(fmt.Errorf("reading %q: it is no string", m.key))
	default:
		var err error
		if s, err = unquote(raw); err != nil {
			m.fail(err)
		}
	}
	return raw, s
}

// once ends the walk if the member was seen before, and sets seen.
func (m *members) once(seen *bool) bool {
	if *seen {
		m.fail(fmt.Errorf("reading JSON: %q is given twice", m.key))
	}
	*seen = true
	return m.err == nil
}

// end returns what ended the walk early. Only whitespace may follow the object.
func (m *members) end() error {
	if m.err == nil && skipSpace(m.data, m.next) < len(m.data) {
		m.err = errTrailing
	}
	return m.err
}

// twin reports whether decoders may take the key for name though it is spelled in another
// way: encoding/json ignores case.
func twin(key []byte, name string) bool {
	return len(key) >= len(name) && string(key) != name && bytes.EqualFold(key, []byte(name))
}

// without returns object without the members that are twins of the names.
func without(object []byte, names ...string) ([]byte, error) {
	kept := append(make([]byte, 0, len(object)), '{')
	m := walk(object, 0)
	for m.more() {
		m.skip()
		if m.err == nil && !isTwin(m.key, names) {
			kept = appendMember(kept, object[m.start:m.next])
		}
	}
	return append(kept, '}'), m.end()
}

func isTwin(key []byte, names []string) bool {
	for _, name := range names {
		if twin(key, name) {
			return true
		}
	}
	return false
}

// appendMember appends a member to the object at the end of dst, or an element to the array
// there, which is not closed yet.
func appendMember(dst, member []byte) []byte { return append(appendComma(dst), member...) }

// appendComma appends a comma unless the object or array at the end of dst is empty.
func appendComma(dst []byte) []byte {
	if c := dst[len(dst)-1]; c != '{' && c != '[' {
		dst = append(dst, ',')
	}
	return dst
}

// unquote returns what a JSON string says. Its syntax is right.
func unquote(raw []byte) (string, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("reading a JSON string: %w", err)
	}
	return s, nil
}

// appendQuoted appends s as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // a string always has a JSON form
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// appendSuffixed appends a JSON string with a suffix.
func appendSuffixed(dst, raw []byte, suffix string) []byte {
	dst = append(dst, raw[:len(raw)-1]...)
	start := len(dst)
	dst = appendQuoted(dst, suffix)
	return append(dst[:start], dst[start+1:]...)
}
