package encoding

import (
	"encoding/binary"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// protobufCodec is objects in protobuf, whole or their metadata.
type protobufCodec struct{ media Media }

func (c protobufCodec) Media() Media { return c.media }

func (c protobufCodec) Source(rewriter *merge.Rewriter) Source { return protobufSource{rewriter} }

func (c protobufCodec) AppendOwn(dst []byte, kind string, object runtime.Object) ([]byte, error) {
	document, err := protobufDocument(object)
	if err != nil {
		return nil, err
	}
	return appendFrame(dst, kind, document), nil
}

// protobufDocument encodes an object of the stream's own. The metadata of any kind is where
// PartialObjectMetadata has it.
func protobufDocument(object runtime.Object) (document []byte, err error) {
	var message []byte
	var of metav1.TypeMeta
	switch o := object.(type) {
	case *metav1.PartialObjectMetadata:
		of = o.TypeMeta
		message, err = o.Marshal()
	case *metav1.Status:
		of = o.TypeMeta
		message, err = o.Marshal()
	}
	if err != nil {
		return nil, fmt.Errorf("writing an event: %w", err)
	}
	return merge.AppendProtobufDocument(nil, of, message), nil
}

// frameHead is the size of what precedes each event: its length.
const frameHead = 4

// appendFrame appends an event, behind its length.
func appendFrame(dst []byte, kind string, document []byte) []byte {
	start := len(dst)
	dst = merge.AppendProtobufEvent(append(dst, make([]byte, frameHead)...), kind, document)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-frameHead))
	return dst
}

type protobufSource struct{ rewriter *merge.Rewriter }

func (s protobufSource) Events(body io.Reader) func() (Event, error) {
	in := &input{from: body}
	return func() (Event, error) {
		frame, err := readFrame(in)
		if err != nil {
			return Event{}, err
		}
		kind, document, err := merge.ReadProtobufEvent(frame)
		if err != nil {
			return Event{}, err
		}
		if err := checkKind(kind, document); err != nil {
			return Event{}, err
		}
		key, err := merge.KeyOfProtobuf(document)
		return Event{Kind: kind, Key: key, document: document, Initial: endsInitial(kind, document)}, err
	}
}

// readFrame reads one event.
func readFrame(in *input) ([]byte, error) {
	in.release()
	head, err := in.frame(frameHead)
	if err != nil {
		return nil, err // io.EOF between events
	}
	size := binary.BigEndian.Uint32(head)
	if size > MaxEvent {
		return nil, errTooLarge
	}
	frame, err := in.frame(int(size))
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return frame, err
}

func (s protobufSource) List(body io.Reader, visit func(Event) error) (merge.ListMeta, error) {
	list := merge.NewProtobufReader(body)
	for {
		document, err := list.Next()
		if err == io.EOF {
			return list.Meta(), nil
		}
		if err != nil {
			return list.Meta(), err
		}
		key, err := merge.KeyOfProtobuf(document)
		if err != nil {
			return list.Meta(), err
		}
		if err := visit(Event{Key: key, document: document}); err != nil {
			return list.Meta(), err
		}
	}
}

func (s protobufSource) Append(dst []byte, e Event) ([]byte, error) {
	if e.document == nil {
		document, err := protobufDocument(partial(e.Key))
		if err != nil {
			return nil, err
		}
		e.document = document
	}
	document, err := s.rewriter.AppendProtobuf(nil, e.document)
	if err != nil {
		return nil, err
	}
	return appendFrame(dst, e.Kind, document), nil
}
