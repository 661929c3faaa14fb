package merge

import (
	"fmt"
	"io"
)

// fill reads more into the buffer, behind what is kept. At the stream's end it returns
// io.ErrUnexpectedEOF.
func (l *Reader) fill() error {
	if err := l.makeRoom(); err != nil {
		return err
	}
	for range 100 {
		n, err := l.from.Read(l.buffer[len(l.buffer):cap(l.buffer)])
		l.buffer = l.buffer[:len(l.buffer)+n]
		switch {
		case n > 0:
			return nil // an error comes again
		case err == io.EOF:
			l.ended = true
			return io.ErrUnexpectedEOF
		case err != nil:
			return fmt.Errorf("reading a list: %w", err)
		}
	}
	return io.ErrNoProgress
}

// makeRoom moves what is kept to the buffer's front if little room is left, and grows the
// buffer if that is not enough.
func (l *Reader) makeRoom() error {
	if cap(l.buffer)-len(l.buffer) > cap(l.buffer)/4 {
		return nil
	}
	if !l.slid && len(l.buffer) > 0 {
		l.slid = true
		l.begin = append([]byte(nil), l.buffer[:min(len(l.buffer), beginning)]...)
	}
	left := l.buffer[l.kept:]
	if len(left) > cap(l.buffer)/2 || cap(l.buffer) == 0 {
		size := max(2*cap(l.buffer), firstBuffer)
		if l.Grow != nil {
			if err := l.Grow(size); err != nil {
				return fmt.Errorf("reading a list: %w", err)
			}
		}
		l.buffer = append(make([]byte, 0, size), left...)
	} else {
		l.buffer = append(l.buffer[:0], left...)
	}
	l.at -= l.kept
	l.kept = 0
	return nil
}

// notList returns an error with the document's beginning.
func (l *Reader) notList() error {
	for !l.slid && len(l.buffer) < beginning {
		if l.fill() != nil {
			break
		}
	}
	begin := l.begin
	if !l.slid {
		begin = append(begin, l.buffer...)
	}
	return &NotListError{Kind: l.meta.Kind, Beginning: begin}
}
