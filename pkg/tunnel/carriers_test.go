package tunnel

import (
	"context"
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

func dialFor(t *testing.T, via transport) (net.Conn, time.Duration) {
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
		defer via.close()
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

// olderTransport stands for konnectivity's.
type olderTransport struct{ dials int }

func (o *olderTransport) dial(context.Context, string) (net.Conn, error) {
	o.dials++
	conn, _ := net.Pipe()
	return conn, nil
}

func (o *olderTransport) close() error       { return nil }
func (o *olderTransport) protocol() Protocol { return Konnectivity }

// TestDialsReturnToCarriers has a proxy server of konnectivity's replaced by one
// that speaks carriers.
func TestDialsReturnToCarriers(t *testing.T) {
	for name, tc := range map[string]struct {
		notice func(*carrierTransport)
		within time.Duration
	}{
		"by themselves":                      {func(*carrierTransport) {}, carriersAgain + time.Second},
		"when the connection is a new one":   {(*carrierTransport).lookAgain, time.Second},
		"when it is a new one, even at once": {func(v *carrierTransport) { v.lookAgain(); v.lookAgain() }, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				older, server := &olderTransport{}, &fakeServer{name: "a"}
				var upgraded atomic.Bool
				var attempts atomic.Int64
				via := newCarriers("unused:1", nil)
				via.older = func() (transport, error) { return older, nil }
				via.reach = func(ctx context.Context) (*carrier.Carrier, error) {
					if attempts.Add(1); !upgraded.Load() {
						return nil, carrier.ErrNoCarriers
					}
					return server.reach(ctx)
				}
				defer via.close()
				for range 10 {
					if _, took := dialFor(t, via); took != 0 {
						t.Errorf("a dial to the older server took %s", took)
					}
				}
				if older.dials != 10 || via.protocol() != Konnectivity {
					t.Errorf("%d of 10 dials went to the older server, by %q", older.dials, via.protocol())
				}
				before := attempts.Load()
				time.Sleep(10 * carriersAgain)
				if n := attempts.Load() - before; n < 9 || n > 17 {
					t.Errorf("%d attempts to make a carrier in %s, want about one every %s", n, 10*carriersAgain, carriersAgain)
				}
				upgraded.Store(true)
				tc.notice(via)
				time.Sleep(tc.within)
				if _, took := dialFor(t, via); took != 0 || older.dials != 10 || via.protocol() != Carriers {
					t.Errorf("after the upgrade a dial took %s, by %q", took, via.protocol())
				}
			})
		})
	}
}

// TestMixedServersSpeakCarriers has an upgrade half done: every other attempt
// leads to an older server.
func TestMixedServersSpeakCarriers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, server := &olderTransport{}, &fakeServer{name: "a"}
		var attempts atomic.Int64
		via := newCarriers("unused:1", nil)
		via.older = func() (transport, error) { return older, nil }
		via.reach = func(ctx context.Context) (*carrier.Carrier, error) {
			if attempts.Add(1)%2 == 1 {
				return nil, carrier.ErrNoCarriers
			}
			return server.reach(ctx)
		}
		defer via.close()
		for i := range 50 {
			if _, took := dialFor(t, via); took > 2*time.Second {
				t.Errorf("dial %d took %s, want 2s at most", i, took)
			}
			time.Sleep(time.Second)
		}
		if older.dials > 5 {
			t.Errorf("%d of 50 dials did without carriers, though there were some", older.dials)
		}
	})
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
		defer via.close()
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
