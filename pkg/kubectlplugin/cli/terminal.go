package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Terminal is a writer for text that a cluster may have a part in. Characters that
// a terminal or a reader could take for something else than text are written as codes, as
// in JSON: control characters, those that change the direction of text or are not
// seen, and bytes that are not UTF-8. Each Write is text of its own.
type Terminal struct{ io.Writer }

// Write is part of io.Writer.
func (t Terminal) Write(p []byte) (int, error) {
	if _, err := t.Writer.Write(AppendSafe(nil, p, "\n\t")); err != nil {
		return 0, err
	}
	return len(p), nil
}

// OneLine returns text for one line, or for one cell of a table. The end of a line
// in it would begin one that the cluster wrote.
func OneLine(text string) string { return string(AppendSafe(nil, []byte(text), "")) }

// AppendSafe appends text. Of what is not printable (C0 and C1 controls, format
// characters, separators of lines) it leaves the characters in keep alone.
func AppendSafe(to, text []byte, keep string) []byte {
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			to = append(to, `\ufffd`...)
		case unicode.IsPrint(r) || strings.ContainsRune(keep, r):
			to = append(to, text[:size]...)
		case r < 1<<16:
			to = fmt.Appendf(to, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			to = fmt.Appendf(to, `\u%04x\u%04x`, high, low)
		}
		text = text[size:]
	}
	return to
}

// mostNamed is how many names stand in a line of text.
const mostNamed = 5

// anyOf names some in quotes.
func anyOf(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(name)
	}
	if last := len(quoted) - 1; last > 0 {
		return strings.Join(quoted[:last], ", ") + " or " + quoted[last]
	}
	return quoted[0]
}

// SomeOf names a few of many.
func SomeOf(names []string) string {
	if len(names) <= mostNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), len(names)-mostNamed)
}

// Count is a number with its noun.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// isTerminal reports whether somebody looks at what is written to w.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
