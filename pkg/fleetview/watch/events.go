package watch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// lineEvent is one event in JSON.
type lineEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

const (
	added    = "ADDED"
	modified = "MODIFIED"
	deleted  = "DELETED"
	bookmark = "BOOKMARK"
	failed   = "ERROR"
)

// kinds are those of events about objects and positions.
var kinds = []string{added, modified, deleted, bookmark}

var errTooLarge = fmt.Errorf("reading an event: it has more than %d bytes", maxEvent)

// lineReader reads a watch in JSON: each event is a line. What it holds between events is
// its bufio.Reader, as there is one for each stream and member.
type lineReader struct{ in *bufio.Reader }

func newLineReader(r io.Reader) lineReader { return lineReader{bufio.NewReaderSize(r, 2<<10)} }

// next returns the next event. Its error is io.EOF if the stream ends between events, and
// says what an ERROR event does.
func (r lineReader) next() (kind string, object []byte, err error) {
	line, err := readLine(r.in)
	if err != nil {
		return "", nil, err
	}
	for _, kind := range kinds {
		// This is what apiserver writes. Who reads the object says if it is not whole.
		prefix := `{"type":"` + kind + `","object":`
		if bytes.HasPrefix(line, []byte(prefix)) && bytes.HasSuffix(line, []byte("}}")) {
			return kind, line[len(prefix) : len(line)-1], nil
		}
	}
	var e lineEvent
	if err := json.Unmarshal(line, &e); err != nil {
		return "", nil, fmt.Errorf("reading an event: %w", err)
	}
	return e.Type, e.Object, checkKind(e.Type, e.Object)
}

// checkKind returns an error for an event that is about no object.
func checkKind(kind string, object []byte) error {
	switch {
	case kind == failed:
		return statusError(object)
	case !slices.Contains(kinds, kind):
		return fmt.Errorf("reading an event: its type is %q", kind)
	}
	return nil
}

// readLine returns a line that has more than spaces, without them.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > maxEvent {
			return nil, errTooLarge
		}
		line = append(line, part...)
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && len(bytes.TrimSpace(line)) > 0:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		}
		if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 {
			return trimmed, nil
		}
		line = line[:0]
	}
}
