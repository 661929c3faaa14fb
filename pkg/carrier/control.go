package carrier

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// ALPN is the protocol name by which TLS connections become carriers; see
// spec.md.
const ALPN = "cluster-proxy/1"

// Version is the protocol version that this package speaks.
const Version = 1

// FeatureControl in a dialing side's HELLO asks for a control session on this
// connection, and is confirmed in the answer.
const FeatureControl = "control"

// FeatureOpens in the HELLO of a control session says that an OPEN may come on it, with
// which it becomes a carrier, and is confirmed in the answer.
const FeatureOpens = "opens"

// Hello is the payload of the first frame on a carrier, or on a control session.
type Hello struct {
	Version  uint64
	Session  string   // id of the control session that the carrier belongs to
	Features []string // optional parts of the protocol that the sender knows

	Identifiers string // what an agent says it serves, on a control session
	Servers     uint64 // how many proxy servers there are, in the answer to that
}

// OpenRequest asks for a connection.
type OpenRequest struct {
	Network string        // "tcp"
	Address string        // host:port, as the caller gave it
	Timeout time.Duration // how long the caller waits; 0 = does not say; milliseconds on the wire
	Hops    uint64        // how many proxy servers forwarded it
	Via     string        // the proxy server that forwarded it, by name; empty if none did
}

// Endpoints is the payload of ACCEPT: the target's connection as the side that
// dialed it sees it.
type Endpoints struct {
	Local, Remote string // host:port
}

// The fields of every control payload are strings and varints, so one decoder
// serves all; the .proto text is in spec.md. Unknown fields are skipped.
type fields struct {
	text    [7]string
	number  [7]uint64
	repeats []string // all values of field 3
}

func decodeFields(b []byte) (fields, error) {
	var f fields
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return f, fmt.Errorf("decoding control payload: %w", protowire.ParseError(n))
		}
		b = b[n:]
		known := int(num) < len(f.text)
		switch {
		case typ == protowire.BytesType && known:
			v, m := protowire.ConsumeBytes(b)
			if n = m; n >= 0 {
				f.text[num] = string(v)
				if num == 3 {
					f.repeats = append(f.repeats, string(v))
				}
			}
		case typ == protowire.VarintType && known:
			f.number[num], n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return f, fmt.Errorf("decoding control payload: %w", protowire.ParseError(n))
		}
		b = b[n:]
	}
	return f, nil
}

func appendText(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func appendNumber(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

func (h Hello) append(b []byte) []byte {
	b = appendText(appendNumber(b, 1, h.Version), 2, h.Session)
	for _, f := range h.Features {
		b = protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), f)
	}
	return appendNumber(appendText(b, 4, h.Identifiers), 5, h.Servers)
}

func decodeHello(b []byte) (Hello, error) {
	f, err := decodeFields(b)
	if err == nil && f.number[1] == 0 {
		err = errors.New("HELLO without a version")
	}
	return Hello{Version: f.number[1], Session: f.text[2], Features: f.repeats, Identifiers: f.text[4], Servers: f.number[5]}, err
}

func (r OpenRequest) append(b []byte) []byte {
	b = appendText(appendText(b, 1, r.Network), 2, r.Address)
	if r.Timeout > 0 {
		b = appendNumber(b, 3, uint64(max(r.Timeout/time.Millisecond, 1)))
	}
	return appendText(appendNumber(b, 4, r.Hops), 6, r.Via)
}

// maxTimeout bounds what a peer may ask for: a day.
const maxTimeout = 24 * 60 * 60 * 1000

func decodeOpen(b []byte) (OpenRequest, error) {
	f, err := decodeFields(b)
	return OpenRequest{
		Network: f.text[1],
		Address: f.text[2],
		Timeout: time.Duration(min(f.number[3], maxTimeout)) * time.Millisecond,
		Hops:    f.number[4],
		Via:     f.text[6],
	}, err
}

func (e Endpoints) append(b []byte) []byte {
	return appendText(appendText(b, 1, e.Local), 2, e.Remote)
}

func decodeEndpoints(b []byte) (Endpoints, error) {
	f, err := decodeFields(b)
	return Endpoints{Local: f.text[1], Remote: f.text[2]}, err
}

const maxMessage = 512

func (e *Error) append(b []byte) []byte {
	return appendText(appendNumber(b, 1, uint64(e.Code)), 2, e.Message[:min(len(e.Message), maxMessage)])
}

func decodeError(b []byte, reset bool) (*Error, error) {
	f, err := decodeFields(b)
	return &Error{Code: Code(f.number[1]), Message: f.text[2], Reset: reset}, err
}

// Control is one message of a control session.
type Control struct {
	Kind   ControlKind
	Number uint64
}

// ControlKind says what a message is about. This package knows those of liveness; the
// others are agreed on by those who hold a session.
type ControlKind uint64

// Messages that a Session sends and answers itself.
const (
	controlPing ControlKind = 1
	controlPong ControlKind = 2
)

func (m Control) append(b []byte) []byte {
	return appendNumber(appendNumber(b, 1, uint64(m.Kind)), 2, m.Number)
}

func decodeControl(b []byte) (Control, error) {
	f, err := decodeFields(b)
	return Control{Kind: ControlKind(f.number[1]), Number: f.number[2]}, err
}
