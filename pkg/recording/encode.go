package recording

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// Stream is what a piece of a session is.
type Stream byte

const (
	Output Stream = iota
	ErrorOutput
	Input
	// resize has the size of the terminal as text.
	resize
	streams = int(resize) + 1
)

// streamNames are those in events.
var streamNames = [streams]string{"stdout", "stderr", "stdin", "size"}

// codes are those of events.
var codes = [streams]byte{'o', 'o', 'i', 'r'}

// Codes of events that are not of a stream.
const (
	codeBytes = 'b'
	codeLost  = 'l'
	codeEnd   = 'e'
)

// Header is the first line of a file. Names in it are as users and clusters have chosen them.
type Header struct {
	Version int   `json:"version"`
	Width   int   `json:"width"`
	Height  int   `json:"height"`
	Time    int64 `json:"timestamp"`
	// Title is what players show.
	Title   string  `json:"title,omitempty"`
	Session Session `json:"session"`
}

// Session says whose session a file has, and where it leads to.
type Session struct {
	Name    string `json:"name"`
	User    string `json:"user,omitempty"`
	Kind    string `json:"kind"`
	Cluster string `json:"cluster"`
	// Target is namespace, pod and container.
	Target  string `json:"target"`
	Replica string `json:"replica,omitempty"`
}

// Sizes of a terminal that has not said its own.
const width, height = 80, 24

// header returns the first line.
func (s *Session) header(began time.Time) ([]byte, error) {
	h := Header{Version: 2, Width: width, Height: height, Time: began.Unix(), Title: s.Kind + " " + s.Cluster + " " + s.Target, Session: *s}
	line, err := json.Marshal(h)
	return append(line, '\n'), err
}

// encoder makes the lines of a file.
type encoder struct {
	// tails are bytes that begin a character of a stream and wait for the rest.
	tails [streams][]byte
}

// appendEvent appends a piece of a stream.
func (e *encoder) appendEvent(to []byte, at time.Duration, s Stream, p []byte) []byte {
	if tail := e.tails[s]; len(tail) > 0 {
		p = append(tail, p...)
		e.tails[s] = nil
	}
	if n := unfinished(p); n > 0 {
		e.tails[s] = append([]byte(nil), p[len(p)-n:]...)
		p = p[:len(p)-n]
	}
	if len(p) == 0 {
		return to
	}
	return appendPiece(to, at, s, p)
}

// appendTails appends what no rest has come for.
func (e *encoder) appendTails(to []byte, at time.Duration) []byte {
	for s, tail := range e.tails {
		if len(tail) > 0 {
			to = appendPiece(to, at, Stream(s), tail)
			e.tails[s] = nil
		}
	}
	return to
}

func appendPiece(to []byte, at time.Duration, s Stream, p []byte) []byte {
	exact := utf8.Valid(p)
	if s == ErrorOutput || !exact {
		to = appendHead(to, at, codeBytes)
		to = append(append(to, '"'), streamNames[s]...)
		if !exact {
			to = base64.StdEncoding.AppendEncode(append(to, ' '), p)
		}
		to = append(to, "\"]\n"...)
	}
	to = appendHead(to, at, codes[s])
	if !exact && isBinary(p) {
		p = binaryText // no screen shows what it is
	}
	return append(appendString(to, p), "]\n"...)
}

// binaryText stands for a piece that is no text at all.
var binaryText = []byte("\uFFFD")

// maxLooked is how much of a piece is looked at to tell whether it is text.
const maxLooked = 1 << 10

// isBinary reports whether more than a quarter of a piece is neither text nor for terminals.
func isBinary(p []byte) bool {
	p = p[:min(len(p), maxLooked)]
	strange := 0
	for rest := p; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 || r < '\a' || r > '\r' && r < '\x1b' {
			strange++
		}
		rest = rest[size:]
	}
	return strange*4 > len(p)
}

// appendNote appends an event that is of no stream.
func appendNote(to []byte, at time.Duration, code byte, text string) []byte {
	return append(appendString(appendHead(to, at, code), []byte(text)), "]\n"...)
}

// appendHead appends an event up to its text.
func appendHead(to []byte, at time.Duration, code byte) []byte {
	micros := at.Microseconds()
	to = strconv.AppendInt(append(to, '['), micros/1e6, 10)
	to = fmt.Appendf(to, ".%06d", micros%1e6)
	return append(to, ", \""+string(rune(code))+"\", "...)
}

const hexDigits = "0123456789abcdef"

// appendString appends JSON of text, which is UTF-8 where it can be. Characters that control
// a terminal are escaped, so that a file can be looked at.
func appendString(to, text []byte) []byte {
	to = append(to, '"')
	done := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c < 0x7f && c != '"' && c != '\\' {
			i++
			continue
		}
		r, size := rune(c), 1
		if c >= utf8.RuneSelf {
			if r, size = utf8.DecodeRune(text[i:]); r > 0x9f && (r != utf8.RuneError || size > 1) {
				i += size
				continue
			}
		}
		to = append(to, text[done:i]...)
		switch {
		case c == '"' || c == '\\':
			to = append(to, '\\', c)
		case c == '\n':
			to = append(to, `\n`...)
		case c == '\r':
			to = append(to, `\r`...)
		case r == utf8.RuneError:
			to = append(to, "\uFFFD"...)
		default:
			to = append(to, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
		}
		i += size
		done = i
	}
	return append(append(to, text[done:]...), '"')
}

// unfinished returns how many bytes at the end of p begin a character that may go on.
func unfinished(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if last := p[len(p)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}
