package list

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestAhead reads a body in pieces, some of it ahead.
func TestAhead(t *testing.T) {
	text := strings.Repeat("0123456789", 30_000)
	failure := errors.New("reset")
	for _, most := range []int{0, aheadRead - 1, aheadRead, 100_000, 1 << 20} {
		for name, body := range map[string]io.Reader{
			"all": strings.NewReader(text), "bytewise": iotest.OneByteReader(strings.NewReader(text)), "with error": iotest.DataErrReader(strings.NewReader(text)),
			"broken": io.MultiReader(strings.NewReader(text), iotest.ErrReader(failure)),
		} {
			t.Run(fmt.Sprint(name, most), func(t *testing.T) {
				a := &ahead{ReadCloser: io.NopCloser(body)}
				first := make([]byte, 10)
				if _, err := io.ReadFull(a, first); err != nil {
					t.Fatal(err)
				}
				a.begin(most)
				var rest bytes.Buffer
				_, err := io.CopyBuffer(&rest, struct{ io.Reader }{a}, make([]byte, 1000))
				if broken := name == "broken"; errors.Is(err, failure) != broken || err != nil && !broken {
					t.Errorf("got error %v", err)
				}
				if string(first)+rest.String() != text {
					t.Errorf("got %d bytes, want %d", 10+rest.Len(), len(text))
				}
			})
		}
	}
}
