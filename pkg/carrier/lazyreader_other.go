//go:build !linux

package carrier

import "io"

// lazyReader returns a function that reads once into a pooled buffer; see
// lazyreader_linux.go.
func lazyReader(r io.Reader) func() (*[MaxFrame]byte, int, error) {
	return readAhead(r)
}
