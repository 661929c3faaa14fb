package httprelay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"open-cluster-management.io/cluster-proxy/pkg/liveness"
)

const bufferSize = 4 << 10

// ReadPool is a pool of keep-alive HTTP/1.1 connections to one place, for reads. Its
// methods are safe for concurrent use. http.Transport has such a pool, but with two
// goroutines for each connection that pass on a request and its answer; this pool saves
// their cost (package comment). Nor can http.Transport be told to use free connections
// only.
type ReadPool struct {
	// Dial makes a connection. It is called in the background.
	Dial func(ctx context.Context) (net.Conn, error)
	// Most bounds the connections.
	Most int
	// IdleTimeout is after what time an unused one is closed.
	IdleTimeout time.Duration
	// Alive looks for evidence that a connection is dead from which nothing has come since heard,
	// and may wait for it. It returns true if there is none, as with a slow answer. Without
	// Alive there never is.
	Alive func(conn net.Conn, heard time.Time) bool

	mu      sync.Mutex
	idle    []*pooledConn
	open    int // those being dialed included
	dialing bool
	missed  time.Time
}

// busy: a connection is added only if two requests miss the pool within this time.
// Rare requests do not keep a connection of their own.
const busy = time.Second

// repeatable is how long after it was sent a request without an answer may be
// retried.
const repeatable = 15 * time.Second

// doubtAfter is how long a read waits on a pooled connection before Alive is asked about it,
// and for how long again.
const doubtAfter = liveness.PingAfter

// ErrNone says that no connection is free. Nothing was sent.
var ErrNone = errors.New("no pooled connection is free")

// Broken is the error of a request whose connection ended before any part of an
// answer came. The next request has another one.
type Broken struct{ Err error }

func (b *Broken) Error() string { return b.Err.Error() }
func (b *Broken) Unwrap() error { return b.Err }

// Fits reports whether a request may go on pooled connections: it only reads, so it
// can be retried, it has no body, and it is no watch.
func Fits(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && (r.Body == nil || r.Body == http.NoBody) &&
		!IsUpgrade(r.Header) && !strings.Contains(r.URL.RawQuery, "watch") && !strings.Contains(r.URL.Path, "/watch/")
}

// RoundTrip sends a request for which Fits is true, on a connection that is
// free now. With an error that is not the context's the caller may send the
// request another way; no part of an answer was read.
func (p *ReadPool) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := valid(r.Header); err != nil {
		return nil, err
	}
	c := p.take()
	if c == nil {
		return nil, ErrNone
	}
	resp, err := c.roundTrip(r)
	if err != nil {
		p.drop(c)
		if r.Context().Err() != nil {
			err = r.Context().Err()
		}
		return nil, err
	}
	return resp, nil
}

// RoundTripOr sends a request that Fits by pooled, which leads to RoundTrip, and falls
// back to other. It retries other once if that returns Broken, because what ends one
// connection to a place often ends all of them. It does not retry after repeatable:
// the next connection would most likely be silent for as long. If other gave up two
// silent connections within seconds, they are more likely slow than dead, since the
// second one was chosen for being alive; so the last attempt does not give up.
func (p *ReadPool) RoundTripOr(pooled, other func(*http.Request) (*http.Response, error), r *http.Request) (*http.Response, error) {
	began := time.Now()
	failed := func(err error) bool {
		return err != nil && r.Context().Err() == nil && time.Since(began) <= repeatable
	}
	resp, err := pooled(r)
	if !failed(err) {
		return resp, err
	}
	resp, err = other(r)
	var broken *Broken
	if failed(err) && errors.As(err, &broken) {
		resp, err = other(r)
	}
	if failed(err) && errors.Is(err, errSilent) {
		resp, err = other(r.WithContext(context.WithValue(r.Context(), lastAttemptKey{}, true)))
	}
	if err == nil {
		p.grow()
	}
	return resp, err
}

// valid refuses what would be another header on the other side.
func valid(header http.Header) error {
	for name, values := range header {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("header %q has no valid name", name)
		}
		for _, value := range values {
			if !httpguts.ValidHeaderFieldValue(value) {
				return fmt.Errorf("header %q has an invalid value", name)
			}
		}
	}
	return nil
}

// take returns the connection that was used last, or nil.
func (p *ReadPool) take() *pooledConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		c.timer.Stop()
		return c
	}
	return nil
}

// grow is called when a request missed the pool and was answered another way. It adds a
// connection in the background if there may be more and requests miss the pool often.
func (p *ReadPool) grow() {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := now.Sub(p.missed) < busy
	p.missed = now
	if wanted && p.open < p.Most && !p.dialing {
		p.open++
		p.dialing = true
		go p.add()
	}
}

func (p *ReadPool) add() {
	conn, err := p.Dial(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialing = false
	if err != nil {
		p.open--
		return
	}
	c := &pooledConn{Conn: conn, pool: p, heard: time.Now()}
	c.limited = io.LimitedReader{R: conn}
	c.reader, c.writer = bufio.NewReaderSize(&c.limited, bufferSize), bufio.NewWriterSize(conn, bufferSize)
	c.timer = time.AfterFunc(p.IdleTimeout, func() { p.expire(c) })
	p.idle = append(p.idle, c)
}

func (p *ReadPool) put(c *pooledConn) {
	c.heard = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	c.timer.Reset(p.IdleTimeout)
	p.idle = append(p.idle, c)
}

// expire closes a connection unless it was taken meanwhile.
func (p *ReadPool) expire(c *pooledConn) {
	p.mu.Lock()
	i := slices.Index(p.idle, c)
	if i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
	p.mu.Unlock()
	if i >= 0 {
		p.drop(c)
	}
}

func (p *ReadPool) drop(c *pooledConn) {
	p.mu.Lock()
	p.open--
	p.mu.Unlock()
	_ = c.Close()
}

// dropIdle closes the free connections.
func (p *ReadPool) dropIdle() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, c := range idle {
		c.timer.Stop()
		p.drop(c)
	}
}

type pooledConn struct {
	net.Conn
	pool    *ReadPool
	heard   time.Time // when its last answer ended, or it was made
	limited io.LimitedReader
	reader  *bufio.Reader
	writer  *bufio.Writer
	timer   *time.Timer
}

func (c *pooledConn) roundTrip(r *http.Request) (*http.Response, error) {
	stop := context.AfterFunc(r.Context(), func() { _ = c.Close() })
	d := c.doubt()
	resp, err := c.exchange(r)
	if d.end() {
		err = &Broken{errSilent}
	}
	if err != nil {
		stop()
		return nil, err
	}
	resp.Body = &pooledBody{body: resp.Body, conn: c, stop: stop, again: !resp.Close}
	return resp, nil
}

func (c *pooledConn) exchange(r *http.Request) (*http.Response, error) {
	err := r.Write(c.writer)
	if err == nil {
		err = c.writer.Flush()
	}
	if err != nil {
		return nil, err
	}
	// A trailer has to fit into the reader's buffer, by net/http.
	c.limited.N = MaxHeaderBytes
	for range maxInformational + 1 {
		resp, err := http.ReadResponse(c.reader, r)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 {
			c.limited.N = math.MaxInt64
			return resp, nil
		}
	}
	return nil, errTooManyInformational
}

// pooledBody returns its connection to the pool when it was read to its end, and closes
// it otherwise.
type pooledBody struct {
	body  io.ReadCloser
	conn  *pooledConn
	stop  func() bool
	again bool // the peer takes another request

	once sync.Once
}

func (b *pooledBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil {
		b.end(err == io.EOF)
	}
	return n, err
}

// Close may be called while another goroutine reads.
func (b *pooledBody) Close() error {
	b.end(false)
	return nil
}

func (b *pooledBody) end(complete bool) {
	b.once.Do(func() {
		// Bytes after the end belong to no request.
		if b.stop() && complete && b.again && b.conn.reader.Buffered() == 0 {
			b.conn.pool.put(b.conn)
			return
		}
		b.conn.pool.drop(b.conn)
	})
}
