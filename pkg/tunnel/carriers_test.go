package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

const someTarget = "cluster1:443"

func acceptingAll(name string) carrier.Config {
	return carrier.Config{Role: carrier.Acceptor, Name: name, Handler: carrier.HandlerFunc(func(_ context.Context, p *carrier.Pending) {
		_, _ = p.Accept(carrier.Endpoints{})
	})}
}

func dialFor(t *testing.T, via *carriers) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), DefaultDialTimeout)
	defer cancel()
	conn, err := via.dial(ctx, someTarget)
	if err != nil {
		t.Fatalf("dialing: %v", err)
	}
	return conn
}

// TestServerWithoutCarriers dials through a proxy server that speaks gRPC alone.
func TestServerWithoutCarriers(t *testing.T) {
	source := certificates(t)
	config := source.ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{"h2"}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				_ = conn.(*tls.Conn).Handshake()
				_ = conn.Close()
			})
		}
	})
	defer serving.Wait()
	defer listener.Close()
	d := &Dialer{ProxyServer: listener.Addr().String(), TLS: func() *tls.Config { return source.ClientConfig("127.0.0.1") }}
	defer d.Close()
	if _, err := d.DialContext(t.Context(), "tcp", someTarget); CodeOf(err) != NoProxyServer || !errors.Is(err, carrier.ErrNoCarriers) {
		t.Errorf("a dial through a server without carriers: %v, want %s", err, NoProxyServer)
	}
}

// TestCanceledDialToAServerThatIsGone cancels a dial while the proxy server, which was not
// reached before either, does not answer.
func TestCanceledDialToAServerThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("connection refused")
		var silent atomic.Bool
		via := newCarriers("unused:1", nil)
		via.reach = func(ctx context.Context) (*carrier.Carrier, error) {
			if !silent.Load() {
				return nil, gone
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		defer via.pool.Close()
		if _, err := via.dial(t.Context(), someTarget); CodeOf(err) != NoProxyServer || !errors.Is(err, gone) {
			t.Errorf("a dial to a server that is gone: %v, want %s", err, NoProxyServer)
		}
		silent.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		if _, err := via.dial(ctx, someTarget); CodeOf(err) != Canceled || !errors.Is(err, context.Canceled) {
			t.Errorf("a dial that was canceled: %v, want %s", err, Canceled)
		}
		reason := errors.New("the user's token is revoked")
		ctx, cancelFor := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancelFor(reason) })
		if _, err := via.dial(ctx, someTarget); CodeOf(err) != Canceled || !errors.Is(err, reason) {
			t.Errorf("a dial that was canceled for a reason: %v, want %s and the reason", err, Canceled)
		}
	})
}
