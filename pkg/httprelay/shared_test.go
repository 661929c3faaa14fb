package httprelay

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// h2Peer serves HTTP/2 on connections in memory, each of which can fall silent.
type h2Peer struct {
	handler http.Handler
	ctx     context.Context // of pooled connections
	streams int             // that it takes on a connection; 0 means as many as Go's server takes

	mu      sync.Mutex
	conns   []*hole
	servers []*http.Server
}

// hole is a connection that swallows what is sent from a moment on, and from which
// nothing comes then.
type hole struct {
	net.Conn
	dead   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (h *hole) silent() bool {
	select {
	case <-h.dead:
		return true
	default:
		return false
	}
}

func (h *hole) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if h.silent() {
		<-h.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (h *hole) Write(p []byte) (int, error) {
	if h.silent() {
		return len(p), nil
	}
	return h.Conn.Write(p)
}

func (h *hole) Close() error {
	h.once.Do(func() { close(h.closed) })
	return h.Conn.Close()
}

func (p *h2Peer) dial(context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	conn := &hole{Conn: near, dead: make(chan struct{}), closed: make(chan struct{})}
	p.mu.Lock()
	p.conns = append(p.conns, conn)
	p.mu.Unlock()
	server := &http.Server{Handler: p.handler, Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0)}
	server.Protocols.SetUnencryptedHTTP2(true)
	server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: p.streams}
	listener := &oneConn{conn: far, done: make(chan struct{})}
	p.mu.Lock()
	p.servers = append(p.servers, server)
	p.mu.Unlock()
	go func() { _ = server.Serve(listener) }()
	return conn, nil
}

func (p *h2Peer) dials() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// die makes every connection that there is silent.
func (p *h2Peer) die() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		close(conn.dead)
	}
}

func (p *h2Peer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	for _, server := range p.servers {
		_ = server.Close()
	}
}

func request(t *testing.T, method, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://peer"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// exchange sends a request and reads the answer.
func exchange(by func(*http.Request) (*http.Response, error), r *http.Request) error {
	resp, err := by(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func slow(d time.Duration) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			select {
			case <-time.After(d):
			case <-r.Context().Done():
			}
		}
	})
}

// TestSilentPeer has the peer of every connection die without a word. New requests
// go elsewhere within seconds, those under way are told within half a minute, and
// a request that takes long is neither.
func TestSilentPeer(t *testing.T) {
	for name, tc := range map[string]struct {
		quiet        time.Duration // before the peer dies
		read, within time.Duration
	}{
		"while in use":      {quiet: 0, within: 3 * time.Second},
		"a while after use": {quiet: 10 * time.Second, within: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &h2Peer{handler: slow(time.Minute)}
				s := &Shared{Dial: p.dial, Spread: 4, Streams: 100, IdleTimeout: time.Hour}
				k := &ReadPool{}
				defer p.close()
				if err := exchange(s.RoundTrip, request(t, http.MethodPost, "/")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(tc.quiet)
				underWay := make(chan error, 1)
				began := time.Now()
				go func() { underWay <- exchange(s.RoundTrip, request(t, http.MethodPost, "/slow")) }()
				synctest.Wait()
				p.die()
				none := func(*http.Request) (*http.Response, error) { return nil, ErrNone }
				if err := exchange(func(r *http.Request) (*http.Response, error) { return k.RoundTripOr(none, s.RoundTripRead, r) }, request(t, http.MethodGet, "/")); err != nil || time.Since(began) > tc.within {
					t.Errorf("a read gets %v after %s, want an answer within %s", err, time.Since(began), tc.within)
				}
				began2 := time.Now()
				if err := exchange(s.RoundTrip, request(t, http.MethodPost, "/")); err != nil || time.Since(began2) > tc.within {
					t.Errorf("a write gets %v after %s, want an answer within %s", err, time.Since(began2), tc.within)
				}
				var broken *Broken
				if err := <-underWay; !errors.As(err, &broken) || time.Since(began) > 30*time.Second {
					t.Errorf("what was under way is told %v after %s", err, time.Since(began))
				}
				if n := p.dials(); n != 2 {
					t.Errorf("%d connections, want the dead one and a new one", n)
				}
			})
		})
	}
}

// slowConn is a connection from which everything comes late, the answers to pings
// too.
type slowConn struct {
	net.Conn
	delay time.Duration
}

func (c slowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	time.Sleep(c.delay)
	return n, err
}

// TestSlowPeerIsWaitedFor has a peer that needs longer to answer a ping than a dead
// connection is given. A read is answered late, and not refused.
func TestSlowPeerIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &h2Peer{handler: slow(0)}
		s := &Shared{Spread: 4, Streams: 100, IdleTimeout: time.Hour, Dial: func(ctx context.Context) (net.Conn, error) {
			conn, err := p.dial(ctx)
			return slowConn{conn, 2 * time.Second}, err
		}}
		none := func(*http.Request) (*http.Response, error) { return nil, ErrNone }
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		if err := exchange(func(r *http.Request) (*http.Response, error) {
			return new(ReadPool).RoundTripOr(none, s.RoundTripRead, r)
		}, request(t, http.MethodGet, "/").WithContext(ctx)); err != nil {
			t.Errorf("a read of a slow peer: %v", err)
		}
		p.close()
		time.Sleep(time.Minute) // its readers are late for that too
	})
}

// TestWritesAskQuietConnections has a peer die while nothing is sent.
func TestWritesAskQuietConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &h2Peer{handler: slow(0)}
		s := &Shared{Dial: p.dial, Spread: 4, Streams: 100, IdleTimeout: time.Hour}
		defer p.close()
		write := func() error { return exchange(s.RoundTrip, request(t, http.MethodPost, "/")) }
		if err := write(); err != nil {
			t.Fatal(err)
		}
		p.die()
		time.Sleep(2 * trust)
		began := time.Now()
		if err := write(); err != nil || time.Since(began) > 3*time.Second {
			t.Errorf("%v after %s, want an answer in 3 s", err, time.Since(began))
		}
	})
}

// TestSlowAnswersAreWaitedFor asks for what takes a minute.
func TestSlowAnswersAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &h2Peer{handler: slow(time.Minute)}
		s := &Shared{Dial: p.dial, Spread: 4, Streams: 100, IdleTimeout: time.Hour}
		defer p.close()
		if err := exchange(s.RoundTripRead, request(t, http.MethodGet, "/slow")); err != nil {
			t.Errorf("a read that takes a minute: %v", err)
		}
		if n := p.dials(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// TestSharedConnections sees how many connections requests get, and that spares
// and retired ones go.
func TestSharedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &h2Peer{handler: slow(10 * time.Second)}
		s := &Shared{Dial: p.dial, Spread: 3, Streams: 4, IdleTimeout: time.Hour}
		defer p.close()
		open := func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.conns)
		}
		var requests sync.WaitGroup
		send := func(n, want int) {
			t.Helper()
			for range n {
				requests.Go(func() {
					if err := exchange(s.RoundTrip, request(t, http.MethodPost, "/slow")); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			if got := open(); got != want {
				t.Errorf("%d connections, want %d", got, want)
			}
		}
		send(1, 1)
		send(1, 1) // has to share
		send(1, 2) // would be one too many
		send(1, 3) // shares again, and so soon that there is one more for the next
		send(8, 3) // as many as fit
		send(1, 4) // has no place
		requests.Wait()
		time.Sleep(2 * spareIdle)
		synctest.Wait()
		if got := open(); got != 1 {
			t.Errorf("%d connections stay without requests, want one", got)
		}
		send(1, 1)
		s.Retire()
		if got := open(); got != 1 {
			t.Error("a retired connection ended under its request")
		}
		requests.Wait()
		synctest.Wait()
		if got := open(); got != 0 {
			t.Errorf("%d retired connections stay, want none", got)
		}
	})
}

// TestShutdownLosesNoWrite has a peer that shuts its connections down all the time.
func TestShutdownLosesNoWrite(t *testing.T) {
	var served atomic.Int32
	p := &h2Peer{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if served.Add(1)%8 == 0 {
			w.Header().Set("Connection", "close")
		}
		_, _ = io.Copy(w, r.Body)
	})}
	s := &Shared{Dial: p.dial, Spread: 4, Streams: 100, IdleTimeout: time.Hour}
	defer p.close()
	const writers, each = 8, 200
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for range each {
				// As from a client: a body that can be read once.
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://peer/", io.MultiReader(strings.NewReader("object")))
				if err != nil {
					t.Error(err)
					return
				}
				r.ContentLength = 6
				resp, err := s.RoundTrip(r)
				if err != nil {
					t.Error(err)
					continue
				}
				got, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || string(got) != "object" {
					t.Errorf("a write is answered %q, %v", got, err)
				}
			}
		})
	}
	writing.Wait()
	if n := served.Load(); n != writers*each {
		t.Errorf("%d writes were served %d times", writers*each, n)
	}
}
