package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// members walks the members of a JSON object, which must be whole. A caller asks more for
// each member, and then skips its value or sets next behind it.
type members struct {
	data []byte
	// key is the member's key, without escapes. data[start:value] is its text with the
	// colon, and the value begins at data[value].
	Key          []byte
	start, Value int
	// next is where the walk goes on: behind the value, or the end, of the object.
	Next  int
	count int
	Err   error
	scan  Scanner

	// index has the places of the members, if they are known, and level says where in it.
	index *index
	level int
}

// members walks an Item.
func (o Item) members() members {
	m := Walk(o.json, 0)
	if o.index != nil && !o.index.irregular {
		m.index = o.index
	}
	return m
}

// inner walks the object that is the member's value.
func (m *members) inner() members {
	in := Walk(m.data, m.Value)
	if x := m.index; x != nil && m.level < len(x.path) && string(m.Key) == x.path[m.level] && len(x.levels[m.level+1]) > 0 {
		in.index, in.level = x, m.level+1
	}
	return in
}

// known moves to the next member whose place is known.
func (m *members) known() bool {
	all := m.index.levels[m.level]
	if m.count == len(all) {
		m.Next = SkipSpace(m.data, m.Next) + 1 // behind the brace
		return false
	}
	at := all[m.count]
	m.Key, m.start, m.Value = m.data[at.key+1:at.keyEnd-1], at.key, at.value
	m.count++
	return true
}

// walk returns the members of the object at data[i].
func Walk(data []byte, i int) members {
	m := members{data: data, Next: SkipSpace(data, i)}
	switch {
	case m.Next >= len(data):
		m.Err = ErrEnd
	case data[m.Next] != '{':
		m.Err = Syntax(data[m.Next])
	}
	m.Next++
	return m
}

// more reports whether there is another member. It sets err if the object is broken.
func (m *members) More() bool {
	if m.Err != nil {
		return false
	}
	if m.index != nil {
		return m.known()
	}
	i := m.skipSpace(m.Next)
	if i < len(m.data) && m.data[i] == '}' {
		m.Next = i + 1
		return false
	}
	if m.count > 0 {
		i = m.skipSpace(m.expect(i, ','))
	}
	m.start = i
	i = m.expect(i, '"')
	if m.Err != nil {
		return false
	}
	end, closed, err := SkipString(m.data, i)
	if err != nil || !closed {
		m.fail(err)
		return false
	}
	m.Key = m.data[i : end-1]
	if bytes.IndexByte(m.Key, '\\') >= 0 {
		name, err := Unquote(m.data[i-1 : end])
		if err != nil {
			m.fail(err)
			return false
		}
		m.Key = []byte(name)
	}
	m.Value = m.skipSpace(m.expect(m.skipSpace(end), ':'))
	m.count++
	return m.Err == nil
}

// skipSpace is the function of that name. It sets err if nothing follows.
func (m *members) skipSpace(i int) int {
	i = SkipSpace(m.data, i)
	if i >= len(m.data) && m.Err == nil {
		m.Err = ErrEnd
	}
	return i
}

// expect returns the index behind c, which must be at data[i].
func (m *members) expect(i int, c byte) int {
	if m.Err == nil && m.data[i] != c {
		m.Err = Syntax(m.data[i])
	}
	return i + 1
}

// fail ends the walk with err, or because the data ended if err is nil.
func (m *members) fail(err error) {
	if err == nil {
		err = ErrEnd
	}
	if m.Err == nil {
		m.Err = err
	}
}

// skip moves next behind the member's value and returns the value.
func (m *members) skip() []byte {
	if m.index != nil {
		m.Next = m.index.levels[m.level][m.count-1].end
		return m.data[m.Value:m.Next]
	}
	m.scan.Reset()
	next, done, err := m.scan.Scan(m.data, m.Value)
	if err != nil || !done {
		m.fail(err)
		return nil
	}
	m.Next = next
	return m.data[m.Value:next]
}

// text skips the member's value, which must be a string or null. It returns the value's
// text with its quotes, and what it says; null says nothing.
func (m *members) text() (raw []byte, s string) {
	raw = m.skip()
	switch {
	case m.Err != nil || raw[0] == 'n':
	case raw[0] != '"':
		m.fail(fmt.Errorf("reading %q: it is no string", m.Key))
	default:
		var err error
		if s, err = Unquote(raw); err != nil {
			m.fail(err)
		}
	}
	return raw, s
}

// once ends the walk if the member was seen before, and sets seen.
func (m *members) once(seen *bool) bool {
	if *seen {
		m.fail(fmt.Errorf("reading JSON: %q is given twice", m.Key))
	}
	*seen = true
	return m.Err == nil
}

// end returns what ended the walk early. Only whitespace may follow the object.
func (m *members) end() error {
	if m.Err == nil && SkipSpace(m.data, m.Next) < len(m.data) {
		m.Err = ErrTrailing
	}
	return m.Err
}

// twin reports whether decoders may take the key for name though it is spelled in another
// way: encoding/json ignores case.
func twin(key []byte, name string) bool {
	return len(key) >= len(name) && string(key) != name && bytes.EqualFold(key, []byte(name))
}

// without returns object without the members that are twins of the names.
func without(object []byte, names ...string) ([]byte, error) {
	kept := append(make([]byte, 0, len(object)), '{')
	m := Walk(object, 0)
	for m.More() {
		m.skip()
		if m.Err == nil && !isTwin(m.Key, names) {
			kept = appendMember(kept, object[m.start:m.Next])
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
func Unquote(raw []byte) (string, error) {
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

// Elements returns the elements of a document that is a JSON array, or null, and has
// most elements at most.
func Elements(document []byte, most int) ([][]byte, error) {
	var s Scanner
	begin := SkipSpace(document, 0)
	end, done, err := s.Scan(document, begin)
	switch {
	case err != nil:
		return nil, err
	case !done:
		return nil, ErrEnd
	case SkipSpace(document, end) < len(document):
		return nil, ErrTrailing
	}
	return elements(nil, document[begin:end], most)
}

// elements appends the elements of a JSON array whose syntax is right. null has none.
func elements(values [][]byte, array []byte, most int) ([][]byte, error) {
	switch array[0] {
	case 'n':
		return values, nil
	case '[':
	default:
		return nil, errors.New("it is no array")
	}
	var s Scanner
	for i := SkipSpace(array, 1); array[i] != ']'; {
		if len(values) == most {
			return nil, fmt.Errorf("it has more than %d elements", most)
		}
		s.Reset()
		next, _, err := s.Scan(array, i)
		if err != nil {
			return nil, err
		}
		values = append(values, array[i:next])
		if i = SkipSpace(array, next); array[i] == ',' {
			i = SkipSpace(array, i+1)
		}
	}
	return values, nil
}

// isListKind reports whether a kind is that of a list or Table by its name. Lists of custom
// resources can have others.
func isListKind(kind string) bool { return strings.HasSuffix(kind, "List") || kind == "Table" }
