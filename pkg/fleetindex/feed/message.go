package feed

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
)

const (
	// MaxRequest bounds what an index says that it has: 20 bytes for each object.
	MaxRequest = 16 << 20
	// maxFrame bounds a message on the wire, and maxMessage what it is then.
	maxFrame, maxMessage = 1 << 20, 8 << 20
	// MaxRows bounds the rows and the keys of a message.
	MaxRows = 500
	// compressFrom is the size from which a message is compressed.
	compressFrom = 1 << 10
)

// Request is what an index wants of a cluster, and what it has.
type Request struct {
	Resources []Known `json:"resources"`
}

// Known is what an index has of a resource.
type Known struct {
	Resource
	// Definition is what the rows are like, if there are any.
	Definition *Definition `json:"definition,omitempty"`
	// Digests are those of the namespaces that have rows.
	Digests map[string]Digest `json:"digests,omitempty"`
	// Items are the rows of namespaces, in binary. Large namespaces have them only after an agent
	// has said that they differ.
	Items map[string][]byte `json:"items,omitempty"`
}

// Message is a part of what an agent answers: changes of one resource, in an order in which they can be
// applied. A message without a resource says that the agent has sent all that it knows of.
type Message struct {
	Resource Resource `json:"resource,omitzero"`
	// Definition comes before the first rows of a resource, and again if the columns change: all
	// rows are then sent again.
	Definition *Definition `json:"definition,omitempty"`
	Gone       []Key       `json:"gone,omitempty"`
	// GoneUIDs are objects of which the agent has seen no more than that the index has them.
	GoneUIDs []uint64 `json:"goneUIDs,omitempty"`
	Put      []Row    `json:"put,omitempty"`
	// Version is the resourceVersion that the rows are then as new as, if that is known.
	Version string `json:"version,omitempty"`
	// Synced says that then all rows are there.
	Synced bool `json:"synced,omitempty"`
	// Incomplete says that rows were left out, or why there are none.
	Incomplete string `json:"incomplete,omitempty"`
	// Absent says that the cluster does not have the resource: there are no rows.
	Absent bool `json:"absent,omitempty"`
	// Again ends the stream: the index asks again with what it has by then, and with the items of the
	// namespaces in Differ.
	Again  bool     `json:"again,omitempty"`
	Differ []string `json:"differ,omitempty"`
}

// Writer writes messages to a stream. Each is compressed by itself: thousands of streams that are
// idle keep no dictionaries.
type Writer struct {
	w io.Writer
	z *flate.Writer
}

// NewWriter returns a Writer.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes a message.
func (w *Writer) Write(m *Message) error {
	content, err := json.Marshal(m)
	if err != nil {
		return err
	}
	isCompressed := byte(0)
	if len(content) >= compressFrom {
		var b bytes.Buffer
		if w.z == nil {
			if w.z, err = flate.NewWriter(&b, flate.BestSpeed); err != nil {
				return err
			}
		}
		w.z.Reset(&b)
		if _, err := w.z.Write(content); err != nil {
			return err
		}
		if err := w.z.Close(); err != nil {
			return err
		}
		content, isCompressed = b.Bytes(), 1
	}
	if len(content) > maxFrame {
		return fmt.Errorf("a message has %d bytes, more than %d", len(content), maxFrame)
	}
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), isCompressed)
	_, err = w.w.Write(append(frame, content...))
	return err
}

// Reader reads messages from a stream. It believes nothing of their sizes.
type Reader struct{ r io.Reader }

// NewReader returns a Reader.
func NewReader(r io.Reader) *Reader { return &Reader{r} }

// Frame is a message as it came.
type Frame struct {
	content      []byte
	isCompressed bool
	size         int
}

// Next waits for the next frame. The error is io.EOF if the stream has ended between messages.
func (r *Reader) Next() (*Frame, error) {
	var head [5]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxFrame || head[4] > 1 {
		return nil, fmt.Errorf("the frame of %d bytes and kind %d is none of a feed's", size, head[4])
	}
	content, err := io.ReadAll(io.LimitReader(r.r, int64(size)))
	if err != nil {
		return nil, err
	}
	if len(content) < int(size) {
		return nil, io.ErrUnexpectedEOF
	}
	return &Frame{content, head[4] == 1, len(content)}, nil
}

// Size returns how many bytes there are: on the wire, and after Message as they are unpacked, if that is more.
func (f *Frame) Size() int { return f.size }

// Message unpacks the frame and parses it. It takes more memory than the frame, and waits for nothing.
func (f *Frame) Message() (*Message, error) {
	content := f.content
	if f.isCompressed {
		plain, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(content)), maxMessage+1))
		f.size = max(f.size, len(plain))
		if err != nil {
			return nil, fmt.Errorf("unpacking a message: %w", err)
		}
		if content = plain; len(content) > maxMessage {
			return nil, fmt.Errorf("a message has more than %d bytes", maxMessage)
		}
	}
	m := &Message{}
	if err := json.NewDecoder(bytes.NewReader(content)).Decode(m); err != nil {
		return nil, fmt.Errorf("parsing a message: %w", err)
	}
	return m, m.check()
}

// Read reads the next message.
func (r *Reader) Read() (*Message, error) {
	frame, err := r.Next()
	if err != nil {
		return nil, err
	}
	return frame.Message()
}

// check refuses a message that no agent sends. Rows may be wrong besides, each by itself (Row.Check).
func (m *Message) check() error {
	if len(m.Put) > MaxRows || len(m.Gone) > MaxRows || len(m.GoneUIDs) > MaxRows {
		return fmt.Errorf("a message has %d, %d and %d changes, more than %d", len(m.Put), len(m.Gone), len(m.GoneUIDs), MaxRows)
	}
	if m.Version != "" && !isVersion(m.Version) {
		return errors.New("a message has a resourceVersion that is no number")
	}
	m.Incomplete = printable(m.Incomplete)
	t := texts{left: maxMessage}
	for _, key := range m.Gone {
		key.addTo(&t)
	}
	for i := range m.Put {
		m.Put[i].Key.addTo(&t)
	}
	return t.result()
}

// printable returns the beginning of a text without control characters. Reasons quote what others wrote.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, CutText(text))
}

// MaxQuestions bounds the questions of a Review.
const MaxQuestions = 500

// Review asks what a user may do, whom the index asserts in front-proxy headers.
type Review struct {
	Questions []Question `json:"questions"`
}

// Question is one of a Review.
type Question struct {
	Resource
	Verb string `json:"verb"`
	// Namespace is empty for all namespaces, and for resources in none.
	Namespace string `json:"namespace,omitempty"`
}

// Decision is the cluster's answer to a Question.
type Decision struct {
	Allowed bool `json:"allowed,omitempty"`
	// Undecided says why the cluster has not decided. Such a question is not allowed.
	Undecided string `json:"undecided,omitempty"`
	// Refused says that it has not because it, or its owner, does not let the user ask (401 and 403). Then no earlier
	// decision stands.
	Refused bool `json:"refused,omitempty"`
}

// Decisions answer a Review, in the order of its questions.
type Decisions struct {
	Decisions []Decision `json:"decisions"`
}

// ReadRequest reads a request.
func ReadRequest(r io.Reader) (*Request, error) {
	content, err := io.ReadAll(io.LimitReader(r, MaxRequest+1))
	if err != nil {
		return nil, err
	}
	if len(content) > MaxRequest {
		return nil, errors.New("the request is longer than an index may ask")
	}
	request := &Request{}
	if err := json.Unmarshal(content, request); err != nil {
		return nil, fmt.Errorf("parsing the request: %w", err)
	}
	return request, nil
}
