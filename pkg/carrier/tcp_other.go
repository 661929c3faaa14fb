//go:build !linux

package carrier

import "io"

// lazyReader gives what reads once into a borrowed buffer; see tcp_linux.go.
func lazyReader(r io.Reader) func() (*[MaxFrame]byte, int, error) {
	return func() (*[MaxFrame]byte, int, error) { return readBehindHeader(r) }
}
