package encoding

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// readers give the same bytes in different pieces.
var readers = map[string]func(string) io.Reader{
	"at once":    func(s string) io.Reader { return strings.NewReader(s) },
	"bytewise":   func(s string) io.Reader { return iotest.OneByteReader(strings.NewReader(s)) },
	"with error": func(s string) io.Reader { return iotest.DataErrReader(strings.NewReader(s)) },
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 3*eventBuffer)
	for _, test := range []struct {
		text string
		want []string
		end  error
	}{
		{"", nil, io.EOF},
		{"a\nb\n", []string{"a", "b"}, io.EOF},
		{" a \r\n\n \nb\n \n", []string{"a", "b"}, io.EOF},
		{"a\nb", []string{"a"}, io.ErrUnexpectedEOF},
		{"a\n  ", []string{"a"}, io.EOF},
		{long + "\n" + "b\n" + long + long + "\nc\n", []string{long, "b", long + long, "c"}, io.EOF},
		{strings.Repeat("y", idleBuffer-1) + "\n" + strings.Repeat("z", idleBuffer) + "\n", []string{strings.Repeat("y", idleBuffer-1), strings.Repeat("z", idleBuffer)}, io.EOF},
		{strings.Repeat("x", MaxEvent+eventBuffer), nil, errTooLarge},
	} {
		for name, reader := range readers {
			if name == "bytewise" && len(test.text) > MaxEvent {
				continue
			}
			in := &input{from: reader(test.text)}
			for _, want := range test.want {
				if got, err := in.line(); err != nil || string(got) != want {
					t.Fatalf("%.20q %s: got %.20q and error %v, want %.20q", test.text, name, got, err, want)
				}
			}
			if got, err := in.line(); !errors.Is(err, test.end) {
				t.Errorf("%.20q %s: got %.20q and error %v at the end, want %v", test.text, name, got, err, test.end)
			}
		}
	}
}

// TestIdleInput holds an input to nothing but its first bytes while it waits.
func TestIdleInput(t *testing.T) {
	from, to := io.Pipe()
	in := &input{from: from}
	for i := range 3 {
		go func() { fmt.Fprintf(to, "%d%s\n", i, strings.Repeat("x", 2*eventBuffer)) }()
		if _, err := in.line(); err != nil {
			t.Fatal(err)
		}
		in.release()
		if in.buffer != nil {
			t.Fatalf("after line %d it has a buffer of %d bytes, want none", i, cap(in.buffer.data))
		}
	}
}
