package merge

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
