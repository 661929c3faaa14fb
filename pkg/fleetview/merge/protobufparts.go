package merge

import (
	"fmt"

	"encoding/json"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Numbers of the fields of a WatchEvent, and of the RawExtension in it.
const (
	eventType, eventObject = 1, 2
	extensionRaw           = 1
)

// ReadProtobufEvent reads an event of a watch in protobuf. The document, which has its
// envelope, is a part of the event.
func ReadProtobufEvent(event []byte) (kind string, document []byte, err error) {
	var kinds, objects, raw bool
	for len(event) > 0 {
		var f field
		if f, event, err = nextField(event); err != nil {
			return "", nil, err
		}
		switch f.number {
		case eventType:
			err = f.known(&kinds)
			kind = string(f.content)
		case eventObject:
			if err = f.known(&objects); err == nil {
				document, err = readExtension(f.content, &raw)
			}
		}
		if err != nil {
			return "", nil, err
		}
	}
	if !raw {
		return "", nil, errors.New("reading an event: it has no object")
	}
	return kind, document, nil
}

func readExtension(extension []byte, seen *bool) (raw []byte, err error) {
	for len(extension) > 0 {
		var f field
		if f, extension, err = nextField(extension); err != nil {
			return nil, err
		}
		if f.number != extensionRaw {
			continue
		}
		if err := f.known(seen); err != nil {
			return nil, err
		}
		raw = f.content
	}
	return raw, nil
}

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

// MaxStatus bounds a Status that is read. Those with a cause for each field of an object
// have some KiB.
const MaxStatus = 64 << 10

// ReadStatus reads a Status in JSON or protobuf.
func ReadStatus(document []byte) (status metav1.Status, err error) {
	if len(document) > MaxStatus {
		return status, fmt.Errorf("reading a Status: it has more than %d KiB", MaxStatus>>10)
	}
	if e, envelopeErr := openEnvelope(document); envelopeErr == nil {
		status.APIVersion, status.Kind = e.apiVersion, e.kind
		if e.kind == "Status" {
			err = status.Unmarshal(e.raw)
		}
	} else {
		err = json.Unmarshal(document, &status)
	}
	if err == nil && status.Kind != "Status" {
		err = fmt.Errorf("it is %q", status.Kind)
	}
	if err != nil {
		return metav1.Status{}, fmt.Errorf("reading a Status: %w", err)
	}
	return status, nil
}

// Numbers of the fields of a list and of its ListMeta.
const (
	listMetadata, listItems                   = 1, 2
	listVersion, listContinue, listRemainders = 2, 3, 4
)

// maxProtobufItems bounds the items of a list that is read as a whole. Objects have more than
// a hundred bytes, and what is read as a whole has 16 MiB.
const maxProtobufItems = 200_000

// ReadProtobufList reads a list in protobuf, with its envelope. The items are parts of body,
// without envelopes. The error is a *NotListError if body is a Status or an object.
func ReadProtobufList(body []byte) (meta ListMeta, items [][]byte, err error) {
	e, err := openEnvelope(body)
	if err != nil {
		return meta, nil, err
	}
	meta.APIVersion, meta.Kind = e.apiVersion, e.kind
	if !isListKind(e.kind) {
		return meta, nil, &NotListError{Kind: e.kind, Beginning: body[:min(len(body), beginning)]}
	}
	var seen bool
	for rest := e.raw; len(rest) > 0; {
		var f field
		if f, rest, err = nextField(rest); err != nil {
			return meta, nil, err
		}
		switch f.number {
		case listMetadata:
			if err = f.known(&seen); err == nil {
				err = meta.readProtobuf(f.content)
			}
		case listItems:
			var one bool
			if err = f.known(&one); err == nil {
				items = append(items, f.content)
			}
			if len(items) > maxProtobufItems {
				err = fmt.Errorf("reading a list: it has more than %d items", maxProtobufItems)
			}
		}
		if err != nil {
			return meta, nil, err
		}
	}
	return meta, items, nil
}

// readProtobuf sets what a ListMeta says.
func (m *ListMeta) readProtobuf(message []byte) error {
	for len(message) > 0 {
		f, rest, err := nextField(message)
		if err != nil {
			return fmt.Errorf("reading a list's metadata: %w", err)
		}
		message = rest
		switch f.number {
		case listVersion:
			m.ResourceVersion = string(f.content)
		case listContinue:
			m.Continue = string(f.content)
		case listRemainders:
			if f.kind == protowire.VarintType {
				_, _, n := protowire.ConsumeTag(f.text)
				value, _ := protowire.ConsumeVarint(f.text[n:])
				count := int64(value)
				m.RemainingItemCount = &count
			}
		}
	}
	return nil
}

// AppendProtobufList appends a list in protobuf, with its envelope.
func AppendProtobufList(dst []byte, meta ListMeta, items [][]byte) []byte {
	dst = appendEnvelope(dst, metav1.TypeMeta{APIVersion: meta.APIVersion, Kind: meta.Kind})

	var list []byte
	list = appendString(list, listVersion, meta.ResourceVersion)
	list = appendString(list, listContinue, meta.Continue)
	if meta.RemainingItemCount != nil {
		list = protowire.AppendTag(list, listRemainders, protowire.VarintType)
		list = protowire.AppendVarint(list, uint64(*meta.RemainingItemCount))
	}
	list = closeField(list, 0, listMetadata)

	// The list's size comes before the items. Its items are copied once that way.
	size := len(list)
	for _, item := range items {
		size += protowire.SizeTag(listItems) + protowire.SizeBytes(len(item))
	}
	dst = protowire.AppendTag(dst, unknownRaw, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(size))
	dst = append(dst, list...)
	for _, item := range items {
		dst = protowire.AppendTag(dst, listItems, protowire.BytesType)
		dst = protowire.AppendBytes(dst, item)
	}
	return dst
}

func appendString(dst []byte, number protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(dst, number, protowire.BytesType), s)
}
