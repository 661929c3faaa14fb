package merge

import (
	"encoding/json"
	"errors"
	"fmt"

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
