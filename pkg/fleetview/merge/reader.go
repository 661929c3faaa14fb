package merge

import (
	"errors"
	"fmt"
	"io"
)

const (
	// maxItem bounds an item of a list, and everything else that a Reader keeps.
	maxItem = 16 << 20
	// firstBuffer is the size of the buffer at first: hundreds of members are read at once.
	firstBuffer = 32 << 10
	// beginning is how much of a document is kept for NotListError.
	beginning = 4 << 10
)

// Reader reads a list or a Table in JSON from a stream, item by item. It keeps one buffer
// that grows to the largest item. It is not safe for concurrent use.
type Reader struct {
	// Grow is asked before the buffer grows to a size; nil lets it.
	Grow func(size int) error

	from io.Reader
	// buffer[at:] is what was read and not used yet. Used bytes from buffer[kept:] on are kept.
	buffer   []byte
	kept, at int
	// begin is the document's beginning, once it has left the buffer.
	begin []byte
	slid  bool

	scan    Scanner
	index   *index
	meta    ListMeta
	columns []byte
	// seen has the keys of the document that matter, members counts all of them.
	seen    map[string]bool
	members int
	items   int
	phase   phase
	ended   bool
	err     error
}

// phase is where in the document a Reader is.
type phase uint8

const (
	phaseStart   phase = iota // before the document
	phaseMembers              // among the members of the document
	phaseItems                // in the array of items or rows
)

var errItem = fmt.Errorf("reading a list: an item is larger than %d MiB", maxItem>>20)

// NewReader returns a Reader that reads from r when it is asked for an item.
func NewReader(r io.Reader) *Reader { return &Reader{from: r} }

// Meta returns what is known so far. It is complete once Next has returned io.EOF: lists of
// custom resources have their metadata behind the items.
func (l *Reader) Meta() ListMeta { return l.meta }

// Columns returns the columnDefinitions of a Table in JSON. They are known before its first
// row; they are nil in a list.
func (l *Reader) Columns() []byte { return l.columns }

// Next returns the next item or row, which is valid until Next is asked again. Next returns
// io.EOF behind the last item, when the whole document is read, io.ErrUnexpectedEOF if the
// stream ends early, and a *NotListError if the document is no list. Every error is final.
func (l *Reader) Next() (Item, error) {
	if l.err != nil {
		return Item{}, l.err
	}
	item, err := l.next()
	if err != nil {
		l.err, l.buffer = err, nil
		return Item{}, err
	}
	l.index.finish(item)
	return Item{item, l.index}, nil
}

func (l *Reader) next() ([]byte, error) {
	l.kept = l.at
	if l.phase == phaseStart {
		if err := l.open(); err != nil {
			return nil, err
		}
		l.phase = phaseMembers
	}
	for {
		if l.phase == phaseItems {
			item, err := l.item()
			if item != nil || err != nil {
				return item, err
			}
			l.phase = phaseMembers
		}
		if more, err := l.member(); err != nil {
			return nil, err
		} else if !more {
			return nil, l.close()
		}
	}
}

// open reads the document's opening brace.
func (l *Reader) open() error {
	l.seen = map[string]bool{}
	c, err := l.token()
	if err != nil {
		return err
	}
	if c != '{' {
		return l.notList()
	}
	l.at++
	return nil
}

// close checks what was read, and that nothing follows.
func (l *Reader) close() error {
	if !l.seen["items"] && !l.seen["rows"] && !isListKind(l.meta.Kind) {
		return l.notList()
	}
	l.kept = l.at
	_, err := l.token()
	switch {
	case l.ended:
		return io.EOF
	case err != nil:
		return err
	}
	return ErrTrailing
}

// member reads a member of the document, up to its first item if it has the items. It
// reports whether there was one.
func (l *Reader) member() (bool, error) {
	l.kept = l.at
	c, err := l.token()
	if err != nil {
		return false, err
	}
	if c == '}' {
		l.at++
		return false, nil
	}
	if l.members > 0 {
		if c != ',' {
			return false, Syntax(c)
		}
		l.at++
		if c, err = l.token(); err != nil {
			return false, err
		}
	}
	if c != '"' {
		return false, Syntax(c)
	}
	key, err := l.text()
	if err != nil {
		return false, err
	}
	l.members++
	if err := l.once(key); err != nil {
		return false, err
	}
	if c, err = l.token(); err != nil {
		return false, err
	}
	if c != ':' {
		return false, Syntax(c)
	}
	l.at++
	if c, err = l.token(); err != nil {
		return false, err
	}
	l.kept = l.at
	return true, l.memberValue(key, c)
}

// once refuses a second member of the same key, if the key matters.
func (l *Reader) once(key string) error {
	switch key {
	case "kind", "apiVersion", "metadata", "columnDefinitions", "items", "rows":
		if l.seen[key] {
			return fmt.Errorf("reading a list: %q is given twice", key)
		}
		l.seen[key] = true
	}
	return nil
}

// memberValue reads the value of a member of the document, which begins with c.
func (l *Reader) memberValue(key string, c byte) error {
	switch key {
	case "items", "rows":
		switch {
		case l.seen["items"] && l.seen["rows"]:
			return errors.New("reading a list: it has both items and rows")
		case l.meta.Kind == "Status":
			return l.notList()
		case key == "rows" && l.columns == nil && c == '[':
			return errors.New("reading a Table: its rows are before its columnDefinitions")
		case c == '[':
			l.at++
			l.phase = phaseItems
			l.index = newIndex(pathOfObject)
			if key == "rows" {
				l.index = newIndex(pathOfRow)
			}
			return nil
		}
		value, err := l.value()
		if err == nil && string(value) != "null" {
			err = l.notList()
		}
		return err
	case "kind", "apiVersion":
		if c != '"' {
			return l.notList()
		}
		text, err := l.text()
		if key == "kind" {
			l.meta.Kind = text
		} else {
			l.meta.APIVersion = text
		}
		return err
	}
	value, err := l.value()
	if err != nil {
		return err
	}
	switch key {
	case "metadata":
		if c != '{' && c != 'n' {
			return l.notList()
		}
		// A single object can have anything there. Only its end shows that it is no list.
		if err := l.meta.readMetadata(value); err != nil {
			return err
		}
	case "columnDefinitions":
		l.columns = append(make([]byte, 0, len(value)), value...)
	}
	return nil
}

// item reads an item, or the end of the items, for which it returns nil.
func (l *Reader) item() ([]byte, error) {
	c, err := l.token()
	if err != nil {
		return nil, err
	}
	if c == ']' {
		l.at++
		return nil, nil
	}
	if l.items > 0 {
		if c != ',' {
			return nil, Syntax(c)
		}
		l.at++
		if c, err = l.token(); err != nil {
			return nil, err
		}
	}
	if c != '{' {
		return nil, fmt.Errorf("reading a list: an item begins with %q, it is no object", c)
	}
	l.items++
	l.scan.resetIndexed(l.index)
	return l.scanned()
}

// value reads the value at at and returns its text, which is valid until more is read.
func (l *Reader) value() ([]byte, error) {
	l.scan.Reset()
	return l.scanned()
}

// scanned is value with the scanner as it is.
func (l *Reader) scanned() ([]byte, error) {
	l.kept = l.at
	for {
		next, done, err := l.scan.Scan(l.buffer[l.kept:], l.at-l.kept)
		l.at = l.kept + next
		if err != nil {
			return nil, err
		}
		if l.at-l.kept > maxItem {
			return nil, errItem
		}
		if done {
			return l.buffer[l.kept:l.at], nil
		}
		if err := l.fill(); err != nil {
			return nil, err
		}
	}
}

// text reads the string at at.
func (l *Reader) text() (string, error) {
	raw, err := l.value()
	if err != nil {
		return "", err
	}
	return Unquote(raw)
}

// token moves at to the next byte that is no whitespace, and returns it.
func (l *Reader) token() (byte, error) {
	for {
		if l.at = SkipSpace(l.buffer, l.at); l.at < len(l.buffer) {
			return l.buffer[l.at], nil
		}
		l.kept = l.at
		if err := l.fill(); err != nil {
			return 0, err
		}
	}
}

// fill reads more into the buffer, behind what is kept. At the stream's end it returns
// io.ErrUnexpectedEOF.
func (l *Reader) fill() error {
	if err := l.makeRoom(); err != nil {
		return err
	}
	for range 100 {
		n, err := l.from.Read(l.buffer[len(l.buffer):cap(l.buffer)])
		l.buffer = l.buffer[:len(l.buffer)+n]
		switch {
		case n > 0:
			return nil // an error comes again
		case err == io.EOF:
			l.ended = true
			return io.ErrUnexpectedEOF
		case err != nil:
			return fmt.Errorf("reading a list: %w", err)
		}
	}
	return io.ErrNoProgress
}

// makeRoom moves what is kept to the buffer's front if little room is left, and grows the
// buffer if that is not enough.
func (l *Reader) makeRoom() error {
	if cap(l.buffer)-len(l.buffer) > cap(l.buffer)/4 {
		return nil
	}
	if !l.slid && len(l.buffer) > 0 {
		l.slid = true
		l.begin = append([]byte(nil), l.buffer[:min(len(l.buffer), beginning)]...)
	}
	left := l.buffer[l.kept:]
	if len(left) > cap(l.buffer)/2 || cap(l.buffer) == 0 {
		size := max(2*cap(l.buffer), firstBuffer)
		if l.Grow != nil {
			if err := l.Grow(size); err != nil {
				return fmt.Errorf("reading a list: %w", err)
			}
		}
		l.buffer = append(make([]byte, 0, size), left...)
	} else {
		l.buffer = append(l.buffer[:0], left...)
	}
	l.at -= l.kept
	l.kept = 0
	return nil
}

// notList returns an error with the document's beginning.
func (l *Reader) notList() error {
	for !l.slid && len(l.buffer) < beginning {
		if l.fill() != nil {
			break
		}
	}
	begin := l.begin
	if !l.slid {
		begin = append(begin, l.buffer...)
	}
	return &NotListError{Kind: l.meta.Kind, Beginning: begin}
}
