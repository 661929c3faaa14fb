package httprelay

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/liveness"
)

const (
	// silence is how long an HTTP/2 connection may be silent after something was sent
	// before it is pinged.
	silence = liveness.PingAfter
	// probeTimeout is how long it may take to answer that.
	probeTimeout = liveness.PingTimeout
	// trust is how long after it received something a connection counts as alive for
	// requests that cannot be sent again.
	trust = 3 * time.Second
)

// errSilent says that a connection receives nothing, not even the answer to a ping.
var errSilent = errors.New("the connection is silent: something on the path is gone without closing it")

// wire notes when something comes.
type wire struct {
	net.Conn
	made time.Time
	// heard is when something came last, asked when the first thing was sent since
	// then (0: nothing was), and doubted when the connection was taken for dead,
	// all since made.
	heard, asked, doubted atomic.Int64
}

func newWire(conn net.Conn) *wire { return &wire{Conn: conn, made: time.Now()} }

func (w *wire) now() int64 { return int64(time.Since(w.made)) + 1 }

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.heard.Store(w.now())
		w.asked.Store(0)
	}
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	w.asked.CompareAndSwap(0, w.now())
	return w.Conn.Write(p)
}

// silent reports whether nothing came for long enough after something was sent.
func (w *wire) silent() bool {
	asked := w.asked.Load()
	return asked > 0 && time.Duration(w.now()-asked) >= silence
}

// old reports whether the last that came says nothing about now.
func (w *wire) old() bool { return time.Duration(w.now()-w.heard.Load()) > trust }

// suspect reports whether the connection was found dead, and nothing came since.
func (w *wire) suspect() bool {
	doubted := w.doubted.Load()
	return doubted > 0 && w.heard.Load() < doubted
}

// probe is a ping for all that want to know.
type probe struct {
	done chan struct{}
	err  error // after done
}

// alive pings a connection. The peer's answer is what counts, or anything else
// that comes of it.
func (s *Shared) alive(c *sharedConn) *probe {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.probing != nil {
		return c.probing
	}
	p := &probe{done: make(chan struct{})}
	c.probing = p
	go func() {
		defer close(p.done)
		ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
		defer cancel()
		began := c.wire.now()
		p.err = c.ping(ctx)
		if c.wire.heard.Load() >= began {
			p.err = nil
		}
		if p.err != nil {
			c.wire.doubted.Store(c.wire.now())
		}
		s.mu.Lock()
		if errors.Is(p.err, context.DeadlineExceeded) {
			s.doubted = time.Now()
		}
		c.probing = nil
		s.mu.Unlock()
	}()
	return p
}

// ping asks the peer for nothing, by OPTIONS of * (RFC 9110, 9.3.7), which Go's server answers itself. net/http sends no
// PING when asked to. A connection that takes no more requests cannot be asked; what it says then is whether it is closed.
func (c *sharedConn) ping(ctx context.Context) error {
	if c.Reserve() != nil {
		return c.Err()
	}
	r := &http.Request{Method: http.MethodOptions, URL: &url.URL{Scheme: "https", Host: "peer", Path: "*"}, Header: http.Header{"User-Agent": {""}}}
	resp, err := c.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// proven reports whether a connection is alive. It pings only if nothing came for a
// while.
func (s *Shared) proven(ctx context.Context, c *sharedConn) bool {
	if !c.wire.old() {
		return true
	}
	p := s.alive(c)
	select {
	case <-p.done:
		return p.err == nil
	case <-ctx.Done():
		return true // the request fails by itself
	}
}

// Alive pings the connections of which nothing has come lately. It reports whether no ping
// has stayed unanswered since then; it returns true if there is no connection.
func (s *Shared) Alive(since time.Time) bool {
	s.mu.Lock()
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	var probes []*probe
	for _, c := range conns {
		if time.Duration(c.wire.now()-c.wire.heard.Load()) >= silence && !c.wire.suspect() {
			probes = append(probes, s.alive(c))
		}
	}
	for _, p := range probes {
		<-p.done
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.doubted.After(since)
}

// Acknowledges reports whether a peer acknowledges what it was sent, now or after as long as
// it may take to answer a ping.
func Acknowledges(unacknowledged func() bool) bool {
	if !unacknowledged() {
		return true
	}
	time.Sleep(probeTimeout)
	return !unacknowledged()
}

// doubt looks for evidence that a pooled connection is dead, from when a request was sent
// until there is an answer, and gives it up then. It ends when the request may not be
// retried any more.
type doubt struct {
	conn         *pooledConn
	heard, began time.Time

	mu     sync.Mutex
	timer  *time.Timer
	ended  bool
	gaveUp bool
}

func (c *pooledConn) doubt() *doubt {
	d := &doubt{conn: c, heard: c.heard, began: time.Now()}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.pool.Alive != nil {
		d.timer = time.AfterFunc(doubtAfter, d.check)
	}
	return d
}

func (d *doubt) check() {
	if d.conn.pool.Alive(d.conn.Conn, d.heard) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.ended && time.Since(d.began) < repeatable {
			d.timer.Reset(doubtAfter)
		}
		return
	}
	d.mu.Lock()
	d.gaveUp = !d.ended && time.Since(d.began) < repeatable
	gaveUp := d.gaveUp
	d.mu.Unlock()
	if gaveUp {
		_ = d.conn.Close()
		d.conn.pool.dropIdle() // they may lead the same way
	}
}

// end reports whether the connection was given up.
func (d *doubt) end() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended = true; d.timer != nil {
		d.timer.Stop()
	}
	return d.gaveUp
}

// pick is a request's part of a connection.
type pick struct {
	shared *Shared
	// giveUp ends the request when its connection is silent; nil if it may not be
	// sent again.
	giveUp context.CancelCauseFunc
	// small is a request of which none has a connection to itself.
	small bool

	mu    sync.Mutex
	conn  *sharedConn
	bytes int         // of the body, as long as that is not large
	bulky bool        // conn knows that it is
	timer *time.Timer // nil once there is an answer
}

// watch looks at the request's connection until there is an answer.
func (p *pick) watch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(silence, p.check)
}

func (p *pick) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer.Stop()
	p.timer = nil
}

func (p *pick) took(c *sharedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn, p.bytes, p.bulky = c, 0, false
}

// moved notes that n bytes of the answer's body have come.
func (p *pick) moved(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bulky || p.conn == nil {
		return
	}
	if p.bytes += n; p.bytes > large {
		p.bulky = true
		p.shared.crowds(p.conn)
	}
}

// release may be called more than once.
func (p *pick) release() {
	p.mu.Lock()
	c, bulky := p.conn, p.bulky
	p.conn = nil
	p.mu.Unlock()
	if c == nil {
		return
	}
	p.shared.release(c, bulky)
}

func (p *pick) check() {
	p.mu.Lock()
	c := p.conn
	p.mu.Unlock()
	dead := false
	if c != nil && c.wire.silent() {
		probe := p.shared.alive(c)
		<-probe.done
		dead = probe.err != nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.timer == nil:
	case dead && p.conn == c && p.giveUp != nil:
		p.giveUp(errSilent)
	default:
		p.timer.Reset(silence)
	}
}
