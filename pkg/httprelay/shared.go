package httprelay

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	// pingAfter and pingTimeout end a connection whose peer died silently, and the
	// requests on it.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
	// spareIdle is when an unused connection is given up that is not the only one.
	spareIdle = time.Minute
)

// Shared are HTTP/2 connections to one place, each of which many requests share.
// A request takes the connection that has the fewest. All methods may be called
// from several goroutines.
type Shared struct {
	// Dial makes a connection. It is called in the background.
	Dial func(ctx context.Context) (net.Conn, error)
	// Spread is how many connections are made so that requests need not share one:
	// what is lost on one connection delays everything on it, and all of it
	// together is one flow for the network.
	Spread int
	// Streams is how many requests one connection takes.
	Streams int
	// Window is how much of an answer a stream holds unread; 0 means Window.
	Window int
	// IdleTimeout is when the last unused connection is given up.
	IdleTimeout time.Duration

	once      sync.Once
	transport *http.Transport // makes connections, and sends nothing itself

	mu      sync.Mutex
	conns   []*sharedConn
	dialing []*sharedDial
	missed  time.Time // when a request had to share last
	doubted time.Time // when a ping was last found unanswered
	retired bool
}

// sharedConn is one of the connections. Its fields are under the mutex of Shared.
type sharedConn struct {
	*http.ClientConn
	wire    *wire
	active  int
	bulky   int  // of active, those that are large
	ended   bool // takes no more requests
	unused  *time.Timer
	probing *probe
}

// sharedDial is a dial that requests wait for.
type sharedDial struct {
	done    chan struct{}
	waiting int   // requests
	err     error // after done
}

// undialed is the error of a connection that did not come about.
type undialed struct{ error }

func (u undialed) Unwrap() error { return u.error }

// wireKey is that of the connection which the transport finds where it would dial.
type wireKey struct{}

func (s *Shared) prepared() *http.Transport {
	s.once.Do(func() {
		if s.Window == 0 {
			s.Window = Window
		}
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true) // Dial has encrypted it
		s.transport = &http.Transport{
			DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return ctx.Value(wireKey{}).(*wire), nil },
			Protocols:              protocols,
			DisableCompression:     true,
			IdleConnTimeout:        s.IdleTimeout,
			MaxResponseHeaderBytes: MaxHeaderBytes,
			HTTP2: &http.HTTP2Config{
				MaxReceiveBufferPerStream: s.Window, MaxReadFrameSize: 16 << 10, SendPingTimeout: pingAfter, PingTimeout: pingTimeout,
			},
		}
	})
	return s.transport
}

// RoundTrip sends a request. A *Broken error says that a connection ended under
// it.
func (s *Shared) RoundTrip(r *http.Request) (*http.Response, error) {
	return s.send(r, &pick{shared: s})
}

// RoundTripRead sends a request for which Fits is true. It gives up a connection
// of which nothing comes any more with a *Broken error, long before that
// connection ends; but not on the last attempt of ReadPool.RoundTripOr.
func (s *Shared) RoundTripRead(r *http.Request) (*http.Response, error) {
	if r.Context().Value(lastAttemptKey{}) != nil {
		return s.RoundTrip(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	return s.send(r.WithContext(ctx), &pick{shared: s, giveUp: cancel})
}

// RoundTripSmall sends a request for which Fits is true, one of many to many places with a small
// answer. It shares whatever connection there is, or is being dialed.
func (s *Shared) RoundTripSmall(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	return s.send(r.WithContext(ctx), &pick{shared: s, giveUp: cancel, small: true})
}

func (s *Shared) send(r *http.Request, p *pick) (*http.Response, error) {
	r, err := RepeatBody(r)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	p.watch()
	resp, err := s.attempt(r, p)
	p.answered()
	if err == nil && errors.Is(context.Cause(ctx), errSilent) {
		// It came too late: its rest is canceled with the request.
		_ = resp.Body.Close()
		err = errSilent
	}
	if err != nil {
		err = explain(ctx, err)
		p.release()
		return nil, err
	}
	if resp.Body == http.NoBody {
		p.release()
		return resp, nil
	}
	if resp.ContentLength < 0 {
		p.moved(large + 1)
	}
	resp.Body = &sharedBody{ReadCloser: resp.Body, pick: p}
	return resp, nil
}

// explain finds out from net/http's error whether a connection ended under a request.
// A request that the peer says it did not look at was sent again (attempt). Any other error
// is of the request's own stream, of making a connection, of the caller, or of a connection
// that was there (RFC 9113, 5.4). A request that cannot be written in HTTP/2
// is taken for the last, and fails again.
func explain(ctx context.Context, err error) error {
	var dial undialed
	switch {
	case errors.Is(context.Cause(ctx), errSilent):
		return &Broken{errSilent}
	case errors.As(err, &dial):
		return dial.error
	case ctx.Err() != nil, errors.As(err, new(http2.StreamError)):
		return err
	}
	return &Broken{err}
}

// lastAttemptKey marks a request that is not given up while its connection lasts.
type lastAttemptKey struct{}

// connFor chooses a connection for a request, with a place on it.
func (s *Shared) connFor(ctx context.Context, p *pick) (*sharedConn, error) {
	began := time.Now()
	with := withFew
	if p.small {
		with = withAny
	}
	for {
		c, dial := s.choose(with, p.small)
		switch {
		case c == nil:
			late, err := s.await(ctx, dial, began, with)
			switch {
			case err != nil:
				return nil, err
			case late > with:
				with = late // better crowded than late
			case dial.err == nil:
			case with < withAny && s.any():
				with = withAny // better crowded than not at all
			default:
				return nil, undialed{dial.err}
			}
		case p.giveUp == nil && !s.proven(ctx, c):
			// A read is sent again if this connection is dead; for other requests it
			// would be too late.
			c.Release()
			s.release(c, false)
		default:
			p.took(c)
			return c, nil
		}
	}
}

// await waits for a dial, or until a request that began at that time may share more
// and there is a connection, which it says.
func (s *Shared) await(ctx context.Context, dial *sharedDial, began time.Time, with sharing) (late sharing, err error) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		dial.waiting--
	}()
	wait := time.NewTimer(time.Until(began.Add(crowdWait)))
	defer wait.Stop()
	for {
		select {
		case <-dial.done:
			return with, nil
		case <-ctx.Done():
			return with, context.Cause(ctx)
		case <-wait.C:
		}
		waited := time.Since(began)
		switch {
		case !s.any():
			wait.Reset(crowdWait)
		case waited >= largeWait && with < withAny:
			return withAny, nil
		case waited < largeWait && with < withMany:
			return withMany, nil
		case waited < largeWait:
			wait.Reset(largeWait - waited)
		}
	}
}

// any reports whether there is a connection.
func (s *Shared) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns) > 0
}

func (s *Shared) add(d *sharedDial) {
	defer close(d.done)
	conn, err := s.Dial(context.Background())
	c := &sharedConn{}
	if err == nil {
		c.wire = newWire(conn)
		// The name leads nowhere: the connection is there.
		c.ClientConn, err = s.prepared().NewClientConn(context.WithValue(context.Background(), wireKey{}, c.wire), "http", "peer:80")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialing = slices.DeleteFunc(s.dialing, func(other *sharedDial) bool { return other == d })
	d.err = err
	if err != nil {
		return
	}
	c.unused = time.AfterFunc(spareIdle, func() { s.expire(c) })
	s.conns = append(s.conns, c)
	c.SetStateHook(func(conn *http.ClientConn) {
		if conn.Err() != nil {
			go s.died(c) // what calls the hook may hold the lock
		}
	})
	if s.retired && d.waiting == 0 {
		s.closeLocked(c)
	}
}

// release returns a place on a connection.
func (s *Shared) release(c *sharedConn, bulky bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.active--
	if bulky {
		c.bulky--
	}
	if c.active > 0 {
		return
	}
	if s.retired || c.ended {
		s.closeLocked(c)
		return
	}
	c.unused.Reset(spareIdle)
}

// expire closes a connection if it is unused and there is another, or it was to end with
// requests that took another. The last one ends after IdleTimeout, by the transport.
func (s *Shared) expire(c *sharedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.active == 0 && (s.retired || len(s.conns) > 1) {
		s.closeLocked(c)
	}
}

// closeLocked ends a connection that has no requests. Closing it takes no lock of
// ours, but may wait for a write.
func (s *Shared) closeLocked(c *sharedConn) {
	s.removeLocked(c)
	go c.Close()
}

// removeLocked lets no more requests take a connection.
func (s *Shared) removeLocked(c *sharedConn) {
	c.ended = true
	c.unused.Stop()
	s.conns = slices.DeleteFunc(s.conns, func(other *sharedConn) bool { return other == c })
}

// died notes that a connection has ended.
func (s *Shared) died(c *sharedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.ended && c.wire.silent() {
		s.doubted = time.Now() // net/http's own ping stayed unanswered
	}
	s.removeLocked(c)
}

// Retire lets each connection end with its last request.
func (s *Shared) Retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	for _, c := range slices.Clone(s.conns) {
		if c.active == 0 {
			s.closeLocked(c)
		}
	}
}

// sharedBody ends its request's part of the connection.
type sharedBody struct {
	io.ReadCloser
	pick *pick
}

func (b *sharedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.pick.moved(n); err != nil {
		b.pick.release()
	}
	return n, err
}

func (b *sharedBody) Close() error {
	err := b.ReadCloser.Close()
	b.pick.release()
	return err
}
