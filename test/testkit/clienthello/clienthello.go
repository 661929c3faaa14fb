// Package clienthello sends what a TLS client says first and nothing after it, as
// a flood does that costs its sender little.
package clienthello

import (
	"crypto/tls"
	"net"
	"testing"
	"time"
)

const (
	perSecond = 2000
	perTick   = 20
	// maxOpen is how many connections a flood keeps open.
	maxOpen = 1000
	// dialTimeout is long, since the port is busy.
	dialTimeout = 20 * time.Second
)

// First returns the ClientHello of a client with config.
func First(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() { _ = tls.Client(near, config).Handshake() }()
	hello := make([]byte, 16<<10)
	n, err := far.Read(hello)
	if err != nil {
		t.Fatal(err)
	}
	return hello[:n]
}
