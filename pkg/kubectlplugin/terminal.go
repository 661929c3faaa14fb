package kubectlplugin

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// terminal is a writer for text that a cluster may have a part in. What a terminal
// or a reader could take for something else than text is written as its code, as
// in JSON: control characters, those that change the direction of text or are not
// seen, and bytes that are not UTF-8. Each Write is text of its own.
type terminal struct{ io.Writer }

// Write is part of io.Writer.
func (t terminal) Write(p []byte) (int, error) {
	if _, err := t.Writer.Write(appendSafe(nil, p, "\n\t")); err != nil {
		return 0, err
	}
	return len(p), nil
}

// oneLine returns text for one line, or for one cell of a table. The end of a line
// in it would begin one that the cluster wrote.
func oneLine(text string) string { return string(appendSafe(nil, []byte(text), "")) }

// appendSafe appends text. Of what is not printable (C0 and C1 controls, format
// characters, separators of lines) it leaves the characters in keep alone.
func appendSafe(to, text []byte, keep string) []byte {
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
