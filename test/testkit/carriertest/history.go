package carriertest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A record is what History writes: magic, label, sequence number and a
// checksum over everything before it, so that a byte that is lost, doubled,
// reordered or comes from another connection is noticed where it is.
const (
	magic      = 0x0ca441e4
	headerSize = 4 + 2 + 8 + 4 // magic, label length, sequence, body length
	maxBody    = 1 << 20
)

// Writer writes records with a label, such as cluster id and connection id.
type Writer struct {
	w     io.Writer
	label string
	next  uint64
	buf   []byte
}

// NewWriter makes a Writer.
func NewWriter(w io.Writer, label string) *Writer { return &Writer{w: w, label: label} }

// WriteRecord writes one record with a body of n bytes, which depend on the
// label and the sequence number.
func (w *Writer) WriteRecord(n int) error {
	b := binary.BigEndian.AppendUint32(w.buf[:0], magic)
	b = binary.BigEndian.AppendUint16(b, uint16(len(w.label)))
	b = binary.BigEndian.AppendUint64(b, w.next)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	b = append(b, w.label...)
	for i := range n {
		b = append(b, byte(uint64(i)+w.next*31+uint64(len(w.label))))
	}
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	w.buf = b
	w.next++
	if _, err := w.w.Write(b); err != nil {
		return fmt.Errorf("writing record %d of %q: %w", w.next-1, w.label, err)
	}
	return nil
}

// Check reads records until a clean end of file and returns how many there were.
// Every record must have that label and the next sequence number. An end
// within a record is io.ErrUnexpectedEOF.
func Check(r io.Reader, label string) (records uint64, err error) {
	return CheckN(r, label, 1<<63)
}

// CheckN is Check that stops after n records, for connections that cannot say
// where they end.
func CheckN(r io.Reader, label string, n uint64) (records uint64, err error) {
	for ; records < n; records++ {
		if err := checkRecord(r, label, records); err == io.EOF {
			return records, nil
		} else if err != nil {
			return records, err
		}
	}
	return records, nil
}

// checkRecord returns io.EOF for an end before the record.
func checkRecord(r io.Reader, label string, records uint64) error {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return io.EOF
		}
		return fmt.Errorf("reading record %d of %q: %w", records, label, err)
	}
	labelSize := int(binary.BigEndian.Uint16(head[4:]))
	sequence := binary.BigEndian.Uint64(head[6:])
	size := int(binary.BigEndian.Uint32(head[14:]))
	if binary.BigEndian.Uint32(head[:]) != magic || size > maxBody {
		return fmt.Errorf("record %d of %q starts with %x", records, label, head)
	}
	rest := make([]byte, labelSize+size+4)
	if _, err := io.ReadFull(r, rest); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("reading record %d of %q: %w", records, label, err)
	}
	sum := crc32.Update(crc32.ChecksumIEEE(head[:]), crc32.IEEETable, rest[:labelSize+size])
	switch {
	case string(rest[:labelSize]) != label:
		return fmt.Errorf("a record of %q arrived where %q was expected", rest[:labelSize], label)
	case sequence != records:
		return fmt.Errorf("record %d of %q arrived where %d was expected", sequence, label, records)
	case sum != binary.BigEndian.Uint32(rest[labelSize+size:]):
		return fmt.Errorf("record %d of %q has a wrong checksum", records, label)
	}
	return nil
}
