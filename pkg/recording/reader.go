package recording

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// maxLine is the longest line that is read.
const maxLine = 4 << 20

// ErrCut is the end of a file that is not complete: the session is open, or the process that
// recorded it was killed.
var ErrCut = errors.New("the recording is not complete: its end is missing")

// Event is one of a file.
type Event struct {
	// At is since the beginning.
	At     time.Duration
	Stream Stream
	// Data are the bytes of the stream.
	Data []byte
	// Lost says in words which bytes are missing here. The event has no data then.
	Lost string
	// End says why the recording ends here. The event has no data then.
	End string
}

// Reader reads a file.
type Reader struct {
	Header Header
	lines  *bufio.Reader
	number int
	ended  bool
	// stream and exact are what the event before says of the next one.
	stream string
	exact  []byte
}

// NewReader reads the header. Files of other programs have no session in it.
func NewReader(r io.Reader) (*Reader, error) {
	reader := &Reader{lines: bufio.NewReaderSize(r, 64<<10)}
	line, err := reader.line()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := json.Unmarshal(line, &reader.Header); err != nil || reader.Header.Version != 2 {
		return nil, errors.New("reading the header: it is not that of an asciicast of version 2")
	}
	return reader, nil
}

// line returns the next line. It is io.EOF behind the last one, which may have no end.
func (r *Reader) line() (line []byte, err error) {
	for {
		part, err := r.lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, fmt.Errorf("reading line %d: it is longer than %d bytes", r.number+1, maxLine)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		}
		r.number++
		return line, err
	}
}

// Next returns the next event. Behind the last one it is io.EOF, or ErrCut if the file is not
// complete.
func (r *Reader) Next() (Event, error) {
	for {
		line, err := r.line()
		if errors.Is(err, io.EOF) { // a line without an end is not whole
			if r.ended || r.Header.Session.Name == "" && len(bytes.TrimSpace(line)) == 0 {
				return Event{}, io.EOF
			}
			return Event{}, ErrCut
		}
		if err != nil {
			return Event{}, err
		}
		event, known, err := r.event(line)
		if err != nil {
			return Event{}, fmt.Errorf("reading line %d: %w", r.number, err)
		}
		if known {
			return event, nil
		}
	}
}

// event reads a line. It reports false for one that tells of the next one, or is not known.
func (r *Reader) event(line []byte) (event Event, known bool, err error) {
	var fields []json.RawMessage
	var seconds float64
	var code, text string
	if err := json.Unmarshal(line, &fields); err != nil || len(fields) != 3 {
		return Event{}, false, errors.New("it is no event")
	}
	for i, to := range []any{&seconds, &code, &text} {
		if err := json.Unmarshal(fields[i], to); err != nil {
			return Event{}, false, errors.New("it is no event")
		}
	}
	if seconds < 0 || seconds > maxSeconds {
		return Event{}, false, errors.New("its time is none")
	}
	event = Event{At: time.Duration(seconds * float64(time.Second)), Data: []byte(text)}
	switch code {
	case "o", "i":
		if code == "i" {
			event.Stream = Input
		}
		if at := slices.Index(streamNames[:], r.stream); at >= 0 && at < int(resize) {
			event.Stream = Stream(at)
		}
		if r.exact != nil {
			event.Data = r.exact
		}
		r.stream, r.exact = "", nil
	case "r":
		event.Stream = resize
	case string(rune(codeBytes)):
		name, exact, ok := strings.Cut(text, " ")
		r.stream = name
		if ok {
			r.exact, err = base64.StdEncoding.DecodeString(exact)
		}
		return Event{}, false, err
	case string(rune(codeLost)):
		event.Data, event.Lost = nil, text
	case string(rune(codeEnd)):
		event.Data, event.End = nil, text
		r.ended = true
	default:
		return Event{}, false, nil
	}
	return event, true, nil
}

// maxSeconds is the longest session that is understood: a hundred years.
const maxSeconds = 100 * 366 * 24 * 3600
