package merge

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// ProtobufReader reads a list in protobuf from a stream, item by item. It keeps one buffer
// that grows to the largest item. It is not safe for concurrent use.
type ProtobufReader struct {
	in   *bufio.Reader
	meta ListMeta
	// types and listMeta say that the fields were read, which must not be given twice.
	types, listMeta bool
	// left are the bytes of the list that were not read yet. In its envelope it is -1.
	left   int64
	buffer bytes.Buffer
	opened bool
	err    error
}

// NewProtobufReader returns a ProtobufReader that reads from r when it is asked for an item.
func NewProtobufReader(r io.Reader) *ProtobufReader {
	return &ProtobufReader{in: bufio.NewReaderSize(r, beginning), left: -1}
}

// Meta returns what is known so far. Its kind is known before the first item.
func (l *ProtobufReader) Meta() ListMeta { return l.meta }

// Next returns the next item as a document with its envelope, which is valid until Next is
// asked again. Next returns io.EOF behind the last item, when the whole list is read,
// io.ErrUnexpectedEOF if the stream ends early, and a *NotListError if it has no list. Every
// error is final.
func (l *ProtobufReader) Next() ([]byte, error) {
	if l.err != nil {
		return nil, l.err
	}
	item, err := l.next()
	if err != nil {
		l.err = err
		return nil, err
	}
	return item, nil
}

func (l *ProtobufReader) next() ([]byte, error) {
	if !l.opened {
		if err := l.open(); err != nil {
			return nil, err
		}
		l.opened = true
	}
	for l.left > 0 {
		number, kind, err := l.tag()
		if err != nil {
			return nil, err
		}
		if number == listItems && kind == protowire.BytesType {
			return l.item()
		}
		content, err := l.content(kind)
		switch {
		case err != nil:
			return nil, err
		case number == listItems || number == listMetadata && (kind != protowire.BytesType || l.listMeta):
			return nil, fmt.Errorf("reading a list: field %d is given twice or has type %d", number, kind)
		case number == listMetadata:
			l.listMeta = true
			if err := l.meta.readProtobuf(content); err != nil {
				return nil, err
			}
		}
	}
	return nil, l.close()
}

// open reads the envelope up to the list in it.
func (l *ProtobufReader) open() error {
	head, err := l.in.Peek(beginning)
	if err != nil && err != io.EOF {
		return err
	}
	head = bytes.Clone(head)
	if !bytes.HasPrefix(head, protobufMagic) {
		return &NotListError{Beginning: head}
	}
	if _, err := l.in.Discard(len(protobufMagic)); err != nil {
		return err
	}
	for {
		number, kind, err := l.tag()
		switch {
		case err == io.EOF:
			return &NotListError{Kind: l.meta.Kind, Beginning: head}
		case err != nil:
			return err
		case number != unknownRaw || kind != protowire.BytesType:
			if err := l.envelopeField(number, kind); err != nil {
				return err
			}
			continue
		case !isListKind(l.meta.Kind):
			return &NotListError{Kind: l.meta.Kind, Beginning: head}
		}
		size, err := l.varint()
		l.left = int64(min(size, 1<<62))
		return err
	}
}

// envelopeField reads a field of the envelope that is not the list.
func (l *ProtobufReader) envelopeField(number protowire.Number, kind protowire.Type) error {
	content, err := l.content(kind)
	if err != nil {
		return err
	}
	switch number {
	case unknownTypeMeta:
		var e envelope
		if err := (field{number: number, kind: kind}).known(&l.types); err != nil {
			return err
		}
		err = e.readType(content)
		l.meta.APIVersion, l.meta.Kind = e.apiVersion, e.kind
	case unknownRaw:
		err = errors.New("reading a list: its envelope has several documents")
	default:
		err = checkContent(number, content)
	}
	return err
}

// close reads what follows the list in its envelope.
func (l *ProtobufReader) close() error {
	for l.left = -1; ; {
		number, kind, err := l.tag()
		if err != nil {
			return err // io.EOF is the end
		}
		if err := l.envelopeField(number, kind); err != nil {
			return err
		}
	}
}

// tag reads what begins a field. Its error is io.EOF at the end of the stream.
func (l *ProtobufReader) tag() (protowire.Number, protowire.Type, error) {
	if _, err := l.in.Peek(1); err != nil && l.left < 0 {
		return 0, 0, err
	}
	tag, err := l.varint()
	if err != nil {
		return 0, 0, err
	}
	number, kind := protowire.DecodeTag(tag)
	if number < protowire.MinValidNumber {
		return 0, 0, errors.New("reading protobuf: a field has an invalid number")
	}
	return number, kind, nil
}

// content reads the value of a field, and returns it if it is length-delimited. It is valid
// until more is read.
func (l *ProtobufReader) content(kind protowire.Type) ([]byte, error) {
	l.buffer.Reset()
	switch kind {
	case protowire.VarintType:
		_, err := l.varint()
		return nil, err
	case protowire.Fixed32Type:
		return nil, l.read(4)
	case protowire.Fixed64Type:
		return nil, l.read(8)
	case protowire.BytesType:
		size, err := l.varint()
		if err == nil {
			err = l.read(size)
		}
		return l.buffer.Bytes(), err
	}
	return nil, fmt.Errorf("reading protobuf: a field has type %d", kind)
}

// item reads an item and puts it into an envelope.
func (l *ProtobufReader) item() ([]byte, error) {
	of, err := ItemsOf(l.meta)
	if err != nil {
		return nil, err
	}
	size, err := l.varint()
	if err != nil {
		return nil, err
	}
	l.buffer.Reset()
	head := appendEnvelope(l.buffer.AvailableBuffer(), of)
	l.buffer.Write(protowire.AppendVarint(protowire.AppendTag(head, unknownRaw, protowire.BytesType), size))
	err = l.read(size)
	return l.buffer.Bytes(), err
}

// read appends bytes to the buffer. The buffer grows with what has arrived.
func (l *ProtobufReader) read(size uint64) error {
	if size > maxItem {
		return errItem
	}
	if err := l.take(int64(size)); err != nil {
		return err
	}
	_, err := io.CopyN(&l.buffer, l.in, int64(size))
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (l *ProtobufReader) varint() (uint64, error) {
	counted := countedReader{l.in, 0}
	value, err := binary.ReadUvarint(&counted)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, err
	}
	return value, l.take(counted.n)
}

// take notes that bytes were read, which must be a part of the list within it.
func (l *ProtobufReader) take(n int64) error {
	if l.left < 0 {
		return nil
	}
	if l.left -= n; l.left < 0 {
		return errors.New("reading a list: a field is longer than the list")
	}
	return nil
}

type countedReader struct {
	*bufio.Reader
	n int64
}

func (r *countedReader) ReadByte() (byte, error) {
	r.n++
	return r.Reader.ReadByte()
}
