package merge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
)

// maxDepth bounds how deep a document nests. It is encoding/json's own bound.
const maxDepth = 10_000

// maxNumber bounds the length of a number. A scanner reads a number again when the number's
// end is not in its data yet; the bound keeps that cheap.
const maxNumber = 1024

var errDepth = fmt.Errorf("reading JSON: it nests deeper than %d levels", maxDepth)

// state is what a scanner expects next.
type state uint8

const (
	stateValue       state = iota // a value
	stateElement                  // an array's first element, or its end
	stateFirstKey                 // an object's first key, or its end
	stateKey                      // a key
	stateColon                    // the colon behind a key
	stateNext                     // a comma, or the end of the object or array
	stateKeyString                // the rest of a key
	stateValueString              // the rest of a string
)

// scanner finds the end of a JSON value and checks its syntax, as strictly as encoding/json.
// Its data may arrive in pieces. The zero value is ready for a value.
type Scanner struct {
	state state
	depth int
	// arrays has a bit for each level of the innermost 64: 1 if the level is an array.
	// The lowest bit is the innermost level. outer has the levels around them.
	arrays uint64
	outer  []uint64

	// index gets the places of keys at depths up to indexed; nil if they are not wanted. key
	// is where the key begins that is being read.
	index   *index
	indexed int
	key     int
}

// reset makes s ready for another value.
func (s *Scanner) Reset() { *s = Scanner{outer: s.outer[:0]} }

// resetIndexed makes s ready for an object whose members x gets. The object must begin at
// index 0 of what is scanned.
func (s *Scanner) resetIndexed(x *index) {
	x.reset()
	*s = Scanner{outer: s.outer[:0], index: x, indexed: 1}
}

func (s *Scanner) push(array uint64) error {
	if s.depth >= maxDepth {
		return errDepth
	}
	if s.depth > 0 && s.depth%64 == 0 {
		s.outer = append(s.outer, s.arrays)
		s.arrays = 0
	}
	s.depth++
	s.arrays = s.arrays<<1 | array
	return nil
}

func (s *Scanner) pop() {
	s.depth--
	s.arrays >>= 1
	if s.depth > 0 && s.depth%64 == 0 {
		s.arrays = s.outer[len(s.outer)-1]
		s.outer = s.outer[:len(s.outer)-1]
	}
}

// scan goes on at data[i]. It returns the index behind what it used, and whether the value
// ended there. If it did not, the next scan needs the data from that index on, and more.
func (s *Scanner) Scan(data []byte, i int) (next int, done bool, err error) {
	for i < len(data) {
		c := data[i]
		if c <= ' ' && s.state < stateKeyString {
			if !isSpace(c) {
				return i, false, Syntax(c)
			}
			i++
			continue
		}
		switch s.state {
		case stateValue, stateElement:
			start := i
			if i, err = s.value(data, i); err != nil || i == start {
				return i, false, err
			}
		case stateFirstKey, stateKey:
			switch {
			case c == '"':
				if i, err = s.pairs(data, i); err != nil {
					return i, false, err
				}
			case c == '}' && s.state == stateFirstKey:
				s.pop()
				s.state = stateNext
				i++
			default:
				return i, false, Syntax(c)
			}
		case stateColon:
			if c != ':' {
				return i, false, Syntax(c)
			}
			s.state = stateValue
			i++
		case stateNext:
			if err := s.next(c); err != nil {
				return i, false, err
			}
			i++
		case stateKeyString, stateValueString:
			var closed bool
			if i, closed, err = SkipString(data, i); err != nil || !closed {
				return i, false, err
			}
			if s.state == stateKeyString {
				s.note(data, i)
			}
			s.state = s.state - stateKeyString + stateColon // to stateColon or stateNext
		}
		if s.depth == 0 && s.state == stateNext {
			return i, true, nil
		}
	}
	return i, false, nil
}

// pairs takes members of an object while their values are strings and objects, without
// blanks: most of what API servers write. A key begins at data[i]. It leaves the rest to
// scan, which could take all of it as well.
func (s *Scanner) pairs(data []byte, i int) (next int, err error) {
	for {
		s.key, s.state = i, stateKeyString
		var closed bool
		if i, closed, err = SkipString(data, i+1); err != nil || !closed {
			return i, err
		}
		s.note(data, i)
		s.state = stateColon
		if i+2 >= len(data) || data[i] != ':' {
			return i, nil
		}
		i++
		s.state = stateValue
		switch {
		case data[i] == '"':
			s.state = stateValueString
			if i, closed, err = SkipString(data, i+1); err != nil || !closed {
				return i, err
			}
		case data[i] == '{' && data[i+1] == '}':
			i += 2
		case data[i] == '{' && data[i+1] == '"':
			if err := s.push(0); err != nil {
				return i, err
			}
			i++
			continue
		default:
			return i, nil
		}
		s.state = stateNext
		for i < len(data) && data[i] == '}' && s.depth > 1 {
			s.pop()
			if i++; s.arrays&1 == 1 {
				return i, nil
			}
		}
		if i+1 >= len(data) || data[i] != ',' || data[i+1] != '"' {
			return i, nil
		}
		i++
	}
}

// note adds a key that ends before data[i] to the index.
func (s *Scanner) note(data []byte, i int) {
	if s.depth > s.indexed {
		return
	}
	s.index.add(s.depth, data[s.key:i], s.key)
	s.indexed = min(s.index.open, len(s.index.path)) + 1
}

// next takes the byte behind a value.
func (s *Scanner) next(c byte) error {
	array := s.arrays&1 == 1
	switch {
	case c == ',' && array:
		s.state = stateValue
	case c == ',':
		s.state = stateKey
	case c == ']' && array, c == '}' && !array:
		s.pop()
	default:
		return Syntax(c)
	}
	return nil
}

// value takes the beginning of a value, or a whole number or literal. It returns i if the
// end of the number or literal is not in data.
func (s *Scanner) value(data []byte, i int) (int, error) {
	switch c := data[i]; c {
	case '"':
		s.state = stateValueString
		return i + 1, nil
	case '{':
		s.state = stateFirstKey
		return i + 1, s.push(0)
	case '[':
		s.state = stateElement
		return i + 1, s.push(1)
	case ']':
		if s.state != stateElement {
			return i, Syntax(c)
		}
		s.pop()
		s.state = stateNext
		return i + 1, nil
	case 't', 'f', 'n':
		end, err := skipLiteral(data, i)
		if end > i {
			s.state = stateNext
		}
		return end, err
	default:
		end, err := skipNumber(data, i)
		if end > i {
			s.state = stateNext
		}
		return end, err
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// skipSpace returns the index of the first byte from i on that is no whitespace.
func SkipSpace(data []byte, i int) int {
	for i < len(data) && isSpace(data[i]) {
		i++
	}
	return i
}

// skipString returns the index behind a string's closing quote; i is in the string, and not
// within an escape. Without a closing quote it returns the index to go on at.
func SkipString(data []byte, i int) (next int, closed bool, err error) {
	const (
		ones = 0x0101010101010101
		high = 0x8080808080808080
	)
	for i < len(data) {
		// Eight bytes at a time. The lowest bit that is set in special is exact: it is a
		// quote, a backslash or a control character.
		for i+8 <= len(data) {
			word := binary.LittleEndian.Uint64(data[i:])
			quote, backslash := word^(ones*'"'), word^(ones*'\\')
			special := ((quote-ones)&^quote | (backslash-ones)&^backslash | (word-ones*' ')&^word) & high
			if special != 0 {
				i += bits.TrailingZeros64(special) / 8
				break
			}
			i += 8
		}
		if i >= len(data) {
			break
		}
		switch c := data[i]; {
		case c == '"':
			return i + 1, true, nil
		case c == '\\':
			end, err := skipEscape(data, i)
			if err != nil || end == i {
				return i, false, err
			}
			i = end
		case c < ' ':
			return i, false, Syntax(c)
		default:
			i++
		}
	}
	return i, false, nil
}

// skipEscape returns the index behind the escape at i, or i if it is not whole.
func skipEscape(data []byte, i int) (int, error) {
	if i+1 >= len(data) {
		return i, nil
	}
	switch c := data[i+1]; c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, nil
	case 'u':
		if i+6 > len(data) {
			return i, nil
		}
		for _, digit := range data[i+2 : i+6] {
			if (digit < '0' || digit > '9') && (digit|0x20 < 'a' || digit|0x20 > 'f') {
				return i, Syntax(digit)
			}
		}
		return i + 6, nil
	default:
		return i, Syntax(c)
	}
}

// skipLiteral returns the index behind true, false or null, or i if it is not whole.
func skipLiteral(data []byte, i int) (int, error) {
	literal := "true"
	switch data[i] {
	case 'f':
		literal = "false"
	case 'n':
		literal = "null"
	}
	for j := range literal {
		if i+j >= len(data) {
			return i, nil
		}
		if data[i+j] != literal[j] {
			return i, Syntax(data[i+j])
		}
	}
	return i + len(literal), nil
}

// skipNumber returns the index behind a number, or i if the number may go on behind data.
func skipNumber(data []byte, i int) (int, error) {
	j := i
	at := func() byte { // 0 at the end of data
		if j < len(data) {
			return data[j]
		}
		return 0
	}
	digits := func() bool {
		start := j
		for c := at(); '0' <= c && c <= '9'; c = at() {
			j++
		}
		return j > start
	}
	ok := true
	if at() == '-' {
		j++
	}
	if at() == '0' {
		j++
	} else {
		ok = digits()
	}
	if ok && at() == '.' {
		j++
		ok = digits()
	}
	if ok && at()|0x20 == 'e' {
		if j++; at() == '+' || at() == '-' {
			j++
		}
		ok = digits()
	}
	switch {
	case j-i > maxNumber:
		return i, fmt.Errorf("reading JSON: a number has more than %d digits", maxNumber)
	case j >= len(data):
		return i, nil
	case !ok:
		return i, Syntax(data[j])
	}
	return j, nil
}

func Syntax(c byte) error { return fmt.Errorf("reading JSON: unexpected character %q", c) }

// errEnd says that a document that should be whole is not.
var ErrEnd = fmt.Errorf("reading JSON: %w", io.ErrUnexpectedEOF)

var ErrTrailing = errors.New("reading JSON: something follows the document's end")

// index has the places of an object's members, and of those of the objects in it that a
// path leads to: an object's metadata, or the metadata of a row's object. A scanner writes
// it on its way.
type index struct {
	path []string
	// levels has the members of the object, and of what the path leads to.
	levels [][]member
	// open is how many elements of the path the scanner is in.
	open int
	// irregular says that the places are not to be relied on: a key is given twice, or with
	// an escape, or there are very many.
	irregular bool
}

// member is the place of one member of an object.
type member struct {
	// key is the key with its quotes, and the value begins behind the colon.
	key, keyEnd int
	value, end  int
}

// maxMembers bounds what an index keeps of one object.
const maxMembers = 64

func newIndex(path []string) *index { return &index{path: path, levels: make([][]member, len(path)+1)} }

// The fields that lead to metadata.
var (
	pathOfObject = []string{"metadata"}
	pathOfRow    = []string{"object", "metadata"}
)

// reset makes x ready for another object.
func (x *index) reset() {
	for i := range x.levels {
		x.levels[i] = x.levels[i][:0]
	}
	x.open, x.irregular = 0, false
}

// add notes a key at a depth of the path, or one above: key is its text with quotes, which
// is at an index of the object.
func (x *index) add(depth int, key []byte, at int) {
	level := depth - 1
	x.open = level
	if x.irregular || len(x.levels[level]) == maxMembers || bytes.IndexByte(key, '\\') >= 0 {
		x.irregular = true
		return
	}
	x.levels[level] = append(x.levels[level], member{key: at, keyEnd: at + len(key)})
	if level < len(x.path) && string(key[1:len(key)-1]) == x.path[level] {
		x.open = depth
		x.irregular = len(x.levels[depth]) > 0 // the key was there before
	}
}

// finish finds the values, which are between keys.
func (x *index) finish(object []byte) {
	end := len(object)
	for level, members := range x.levels {
		for i := range members {
			m := &members[i]
			m.value = SkipSpace(object, SkipSpace(object, m.keyEnd)+1)
			if i+1 < len(members) {
				m.end = trimSpace(object, trimSpace(object, members[i+1].key)-1)
			} else {
				m.end = trimSpace(object, end-1)
			}
		}
		if level == len(x.path) {
			return
		}
		i := x.find(object, level)
		if i < 0 {
			return
		}
		end = members[i].end
	}
}

// find returns which member of a level the path goes on with, or -1.
func (x *index) find(object []byte, level int) int {
	for i, m := range x.levels[level] {
		if string(object[m.key+1:m.keyEnd-1]) == x.path[level] {
			return i
		}
	}
	return -1
}

// trimSpace returns the index behind the last byte before i that is no whitespace.
func trimSpace(data []byte, i int) int {
	for i > 0 && isSpace(data[i-1]) {
		i--
	}
	return i
}
