package pool

import (
	"context"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/test/testkit/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ends makes a carrier whose dialed end is the opener.
func ends(t testing.TB, make transport.Maker, handler carrier.HandlerFunc) (opener, acceptor *carrier.Carrier) {
	t.Helper()
	a, b := make(t)
	return endsOver(t, a, b, handler)
}

func endsOver(t testing.TB, a, b net.Conn, handler carrier.HandlerFunc) (opener, acceptor *carrier.Carrier) {
	t.Helper()
	failed := make(chan error, 1)
	go func() {
		var err error
		opener, err = carrier.Dialed(t.Context(), a, carrier.Hello{Session: "s", Features: []string{"f", "g"}}, carrier.Config{Linger: 100 * time.Millisecond})
		failed <- err
	}()
	acceptor, hello, err := carrier.Accepted(t.Context(), b, carrier.Config{Role: carrier.Acceptor, Handler: handler, Linger: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if hello.Session != "s" || len(hello.Features) != 2 || hello.Version != carrier.Version {
		t.Fatalf("HELLO arrived as %+v, want session s, these features and version %d", hello, carrier.Version)
	}
	t.Cleanup(func() {
		_ = opener.Close()
		_ = acceptor.Close()
	})
	return opener, acceptor
}

// accepting hands every connection to a channel.
func accepting(to chan<- *carrier.Conn) carrier.HandlerFunc {
	return func(_ context.Context, p *carrier.Pending) {
		if cn, err := p.Accept(carrier.Endpoints{Local: "10.0.0.1:1", Remote: "10.0.0.2:2"}); err == nil {
			to <- cn
		}
	}
}

var request = carrier.OpenRequest{Network: "tcp", Address: "cluster1:443"}

func newChan() chan *carrier.Conn { return make(chan *carrier.Conn, 1) }
