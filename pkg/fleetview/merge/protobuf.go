package merge

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// protobufMagic begins a Kubernetes document in protobuf. A runtime.Unknown follows.
var protobufMagic = []byte("k8s\x00")

// Numbers of the fields that are read, as k8s.io/apimachinery's generated.proto has them.
const (
	unknownTypeMeta, unknownRaw, unknownEncoding, unknownType = 1, 2, 3, 4
	typeAPIVersion, typeKind                                  = 1, 2
	objectMetadata                                            = 1
	metaName, metaNamespace, metaVersion                      = 1, 3, 6
	metaLabels, metaAnnotations, metaOwners                   = 11, 12, 13
	ownerName                                                 = 3
	selectorLabels                                            = 1
	entryKey, entryValue                                      = 1, 2
)

// envelope is a runtime.Unknown in protobuf.
type envelope struct {
	apiVersion, kind string
	raw              []byte
	// rest are the other fields, as they were.
	rest []byte
}

// field is one field of a message. Its text is the whole field, content what it holds if it
// is length-delimited.
type field struct {
	number  protowire.Number
	kind    protowire.Type
	text    []byte
	content []byte
}

// nextField cuts the first field off a message.
func nextField(message []byte) (f field, rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(message)
	if n < 0 {
		return f, nil, fmt.Errorf("reading protobuf: %w", protowire.ParseError(n))
	}
	size := protowire.ConsumeFieldValue(number, kind, message[n:])
	if size < 0 {
		return f, nil, fmt.Errorf("reading protobuf: %w", protowire.ParseError(size))
	}
	f = field{number: number, kind: kind, text: message[:n+size]}
	if kind == protowire.BytesType {
		f.content, _ = protowire.ConsumeBytes(message[n:])
	}
	return f, message[n+size:], nil
}

// known refuses a field that has another type than it should, or is given twice.
func (f field) known(seen *bool) error {
	if f.kind != protowire.BytesType {
		return fmt.Errorf("reading protobuf: field %d has type %d", f.number, f.kind)
	}
	if *seen {
		return fmt.Errorf("reading protobuf: field %d is given twice", f.number)
	}
	*seen = true
	return nil
}

// openEnvelope reads the envelope of a document.
func openEnvelope(document []byte) (e envelope, err error) {
	rest, ok := bytes.CutPrefix(document, protobufMagic)
	if !ok {
		return e, errors.New("reading protobuf: the document does not begin as Kubernetes' do")
	}
	var types, raw bool
	for len(rest) > 0 {
		var f field
		if f, rest, err = nextField(rest); err != nil {
			return e, err
		}
		switch f.number {
		case unknownTypeMeta:
			if err = f.known(&types); err == nil {
				err = e.readType(f.content)
			}
		case unknownRaw:
			err = f.known(&raw)
			e.raw = f.content
			continue
		default:
			err = checkContent(f.number, f.content)
		}
		if err != nil {
			return e, err
		}
		e.rest = append(e.rest, f.text...)
	}
	return e, err
}

// checkContent refuses the envelope of a document that is not in protobuf.
func checkContent(number protowire.Number, content []byte) error {
	if (number == unknownEncoding || number == unknownType) && len(content) > 0 && string(content) != "application/vnd.kubernetes.protobuf" {
		return fmt.Errorf("reading protobuf: the document's content is %q", content)
	}
	return nil
}

func (e *envelope) readType(typeMeta []byte) error {
	for len(typeMeta) > 0 {
		f, rest, err := nextField(typeMeta)
		if err != nil {
			return err
		}
		typeMeta = rest
		switch f.number {
		case typeAPIVersion:
			e.apiVersion = string(f.content)
		case typeKind:
			e.kind = string(f.content)
		}
	}
	return nil
}

// append appends the envelope without its raw content, which follows as a field.
func (e *envelope) append(dst []byte) []byte {
	return append(append(dst, protobufMagic...), e.rest...)
}

// closeField makes what is at dst[start:] the content of a length-delimited field.
func closeField(dst []byte, start int, number protowire.Number) []byte {
	size := len(dst) - start
	var head [2 * 10]byte
	prefix := protowire.AppendTag(head[:0], number, protowire.BytesType)
	prefix = protowire.AppendVarint(prefix, uint64(size))
	dst = append(dst, prefix...)
	copy(dst[start+len(prefix):], dst[start:start+size])
	copy(dst[start:], prefix)
	return dst
}

// appendProtobufObject appends an object's message with its metadata restored.
func (e *edit) appendProtobufObject(dst, object []byte) (_ []byte, err error) {
	start, seen := len(dst), false
	for len(object) > 0 {
		var f field
		if f, object, err = nextField(object); err != nil {
			return dst[:start], err
		}
		if f.number != objectMetadata {
			dst = append(dst, f.text...)
			continue
		}
		if err := f.known(&seen); err != nil {
			return dst[:start], err
		}
		at := len(dst)
		if dst, err = e.appendProtobufMeta(dst, f.content); err != nil {
			return dst[:start], fmt.Errorf("reading metadata: %w", err)
		}
		dst = closeField(dst, at, objectMetadata)
	}
	return dst, nil
}

// appendProtobufMeta appends the fields of a restored ObjectMeta.
func (e *edit) appendProtobufMeta(dst, meta []byte) (_ []byte, err error) {
	var seen [metaVersion + 1]bool
	for len(meta) > 0 {
		var f field
		if f, meta, err = nextField(meta); err != nil {
			return dst, err
		}
		switch f.number {
		case metaName, metaNamespace, metaVersion:
			if err := f.known(&seen[f.number]); err != nil {
				return dst, err
			}
			var text string
			if text, err = e.text(f.number, string(f.content)); err == nil {
				dst = protowire.AppendTag(dst, f.number, protowire.BytesType)
				dst = protowire.AppendString(dst, text)
			}
		case metaAnnotations:
			var ours bool
			if ours, err = e.oursEntry(f); err == nil && !ours {
				dst = append(dst, f.text...)
			}
		case metaLabels:
			dst, err = e.appendProtobufLabel(dst, f)
		case metaOwners:
			dst, err = e.appendProtobufOwner(dst, f)
		default:
			dst = append(dst, f.text...)
		}
		if err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// text returns a restored text of an ObjectMeta.
func (e *edit) text(number protowire.Number, text string) (string, error) {
	switch {
	case number == metaVersion:
		return e.version(text)
	case text == "":
		return "", nil
	case number == metaName:
		return e.plainName(text), nil
	}
	return e.plain(text), nil
}

// oursEntry reports whether an entry of the annotations has one of our keys.
func (e *edit) oursEntry(f field) (bool, error) {
	if f.kind != protowire.BytesType {
		return false, fmt.Errorf("reading protobuf: field %d has type %d", f.number, f.kind)
	}
	ours := false
	for entry := f.content; len(entry) > 0; {
		in, rest, err := nextField(entry)
		if err != nil {
			return false, err
		}
		if entry = rest; in.number == entryKey {
			ours = e.ours(in.content) // decoders take the last of several
		}
	}
	if ours && e.note != nil {
		e.noteEntry(f, true)
	}
	return ours, nil
}

// appendProtobufPlaces appends a message with its places restored.
func (e *edit) appendProtobufPlaces(dst, message []byte, places Places, depth int) (_ []byte, err error) {
	for len(message) > 0 {
		var f field
		if f, message, err = nextField(message); err != nil {
			return dst, err
		}
		var in Places
		for _, place := range places {
			if depth < len(place.numbers) && place.numbers[depth] == f.number {
				in = append(in, place)
			}
		}
		if len(in) == 0 || f.kind != protowire.BytesType {
			dst = append(dst, f.text...)
			continue
		}
		if dst, err = e.appendProtobufPlace(dst, f, in, depth+1); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// appendProtobufPlace appends a field in which places are.
func (e *edit) appendProtobufPlace(dst []byte, f field, places Places, depth int) (_ []byte, err error) {
	start := len(dst)
	what := what(-1)
	if depth == len(places[0].numbers) {
		what = places[0].what
	}
	switch what {
	case labels:
		return e.appendProtobufLabel(dst, f)
	case name:
		dst = append(dst, e.plain(string(f.content))...)
	case labelSelector:
		for selector := f.content; len(selector) > 0; {
			var in field
			if in, selector, err = nextField(selector); err != nil {
				return dst, err
			}
			if in.number != selectorLabels {
				dst = append(dst, in.text...)
			} else if dst, err = e.appendProtobufLabel(dst, in); err != nil {
				return dst, err
			}
		}
	default:
		if dst, err = e.appendProtobufPlaces(dst, f.content, places, depth); err != nil {
			return dst, err
		}
	}
	return closeField(dst, start, f.number), nil
}

// appendProtobufLabel appends an entry of a map of labels, restored.
func (e *edit) appendProtobufLabel(dst []byte, f field) (_ []byte, err error) {
	if f.kind != protowire.BytesType {
		return dst, fmt.Errorf("reading protobuf: field %d has type %d", f.number, f.kind)
	}
	key, value, err := entryOf(f)
	switch {
	case err != nil:
		return dst, err
	case key == e.label && e.label != "":
		e.noteEntry(f, false)
		return dst, nil
	}
	plain := e.plain(value)
	if plain == value {
		return append(dst, f.text...), nil
	}
	start := len(dst)
	dst = appendString(dst, entryKey, key)
	dst = appendString(dst, entryValue, plain)
	return closeField(dst, start, f.number), nil
}

// entryOf returns the key and the value of an entry of a map.
func entryOf(f field) (key, value string, err error) {
	for entry := f.content; len(entry) > 0; {
		var in field
		if in, entry, err = nextField(entry); err != nil {
			return "", "", err
		}
		switch in.number {
		case entryKey:
			key = string(in.content)
		case entryValue:
			value = string(in.content)
		}
	}
	return key, value, nil
}

// noteEntry notes what the view's label or annotation says.
func (e *edit) noteEntry(f field, annotation bool) {
	if key, cluster, err := entryOf(f); err == nil && e.note != nil && key == e.label {
		e.note(Mention{Cluster: cluster, Annotation: annotation})
	}
}

// appendProtobufOwner appends an OwnerReference with its name restored.
func (e *edit) appendProtobufOwner(dst []byte, f field) (_ []byte, err error) {
	if f.kind != protowire.BytesType {
		return dst, fmt.Errorf("reading protobuf: field %d has type %d", f.number, f.kind)
	}
	start := len(dst)
	for owner := f.content; len(owner) > 0; {
		var in field
		if in, owner, err = nextField(owner); err != nil {
			return dst, err
		}
		if in.number != ownerName || in.kind != protowire.BytesType {
			dst = append(dst, in.text...)
			continue
		}
		dst = appendString(dst, ownerName, e.plain(string(in.content)))
	}
	return closeField(dst, start, f.number), nil
}

// Numbers of the fields of a WatchEvent, and of the RawExtension in it.
const (
	eventType, eventObject = 1, 2
	extensionRaw           = 1
)

// AppendProtobufEvent appends an event of a watch in protobuf.
func AppendProtobufEvent(dst []byte, kind string, document []byte) []byte {
	extension := protowire.SizeTag(extensionRaw) + protowire.SizeBytes(len(document))
	dst = appendString(dst, eventType, kind)
	dst = protowire.AppendTag(dst, eventObject, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(extension))
	dst = protowire.AppendTag(dst, extensionRaw, protowire.BytesType)
	return protowire.AppendBytes(dst, document)
}

// AppendProtobufDocument appends a document: an object's message in its envelope.
func AppendProtobufDocument(dst []byte, of metav1.TypeMeta, message []byte) []byte {
	dst = protowire.AppendTag(appendEnvelope(dst, of), unknownRaw, protowire.BytesType)
	return protowire.AppendBytes(dst, message)
}

// appendEnvelope appends an envelope without its raw content.
func appendEnvelope(dst []byte, of metav1.TypeMeta) []byte {
	dst = append(dst, protobufMagic...)
	start := len(dst)
	dst = appendString(dst, typeAPIVersion, of.APIVersion)
	dst = appendString(dst, typeKind, of.Kind)
	return closeField(dst, start, unknownTypeMeta)
}

func appendString(dst []byte, number protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, number, protowire.BytesType), s)
}
