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
	"open-cluster-management.io/cluster-proxy/pkg/carrier/carriertest"
)

const someTarget = "cluster1:443"

// fakeServer is a proxy server that accepts every dial.
type fakeServer struct {
	name string

	mu     sync.Mutex
	silent bool
	conns  []*carriertest.Mutable
}

func (s *fakeServer) goSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = true
	for _, conn := range s.conns {
		conn.Mute()
	}
}

func (s *fakeServer) reach(ctx context.Context) (*carrier.Carrier, error) {
	near, far := net.Pipe()
	conn := &carriertest.Mutable{Conn: near}
	s.mu.Lock()
	if s.silent {
		conn.Mute()
	}
	s.conns = append(s.conns, conn)
	s.mu.Unlock()
	go func() { _, _, _ = carrier.Accepted(context.Background(), far, acceptingAll(s.name)) }()
	return carrier.Dialed(ctx, conn, carrier.Hello{Features: []string{carrier.FeatureName}}, carrier.Config{})
}

func acceptingAll(name string) carrier.Config {
	return carrier.Config{Role: carrier.Acceptor, Name: name, Handler: carrier.HandlerFunc(func(_ context.Context, p *carrier.Pending) {
		_, _ = p.Accept(carrier.Endpoints{})
	})}
}

func dialFor(t *testing.T, via *carriers) (net.Conn, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), DefaultDialTimeout)
	defer cancel()
	began := time.Now()
	conn, err := via.dial(ctx, someTarget)
	if err != nil {
		t.Errorf("dialing: %v", err)
	}
	return conn, time.Since(began)
}

// TestDialsPassSilentServersOver has two proxy servers behind one address, of
// which one stops to answer without a word.
func TestDialsPassSilentServersOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := []*fakeServer{{name: "a"}, {name: "b"}}
		var next atomic.Int64
		via := newCarriers("unused:1", nil)
		via.reach = func(ctx context.Context) (*carrier.Carrier, error) {
			ctx, cancel := context.WithTimeout(ctx, DefaultDialTimeout)
			defer cancel()
			return servers[next.Add(1)%2].reach(ctx)
		}
		defer via.pool.Close()
		for range 4 {
			dialFor(t, via)
		}
		servers[0].goSilent()
		slow := 0
		for i := range 20 {
			switch _, took := dialFor(t, via); {
			case took > 3*time.Second:
				t.Errorf("dial %d took %s, want at most 3 s", i, took)
			case took > time.Second:
				slow++
			}
		}
		if slow > 1 {
			t.Errorf("%d dials waited for the silent server, want one", slow)
		}
	})
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
