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
)

const bufferSize = 4 << 10

// ReadPool are HTTP/1.1 connections to one place. All methods may be called from
// several goroutines.
type ReadPool struct {
	// Dial makes a connection. It is called in the background.
	Dial func(ctx context.Context) (net.Conn, error)
	// Most is how many connections there may be.
	Most int
	// IdleTimeout is when an unused one is given up.
	IdleTimeout time.Duration

	mu      sync.Mutex
	idle    []*pooledConn
	open    int // those being dialed included
	dialing bool
	missed  time.Time
	// hedged is when a request was sent another way as well, and found when one
	// was answered that way.
	hedged, found time.Time
}

// busy is how close together two requests must be that found no connection free,
// so that one more is made: who asks now and then gets none to keep.
const busy = time.Second

// repeatable is how long after it was sent a request without an answer may be
// sent again.
const repeatable = 15 * time.Second

// ErrNone is that no connection is free. Nothing was sent.
var ErrNone = errors.New("no kept connection is free")

// Broken is the error of a request whose connection ended before any part of an
// answer came. The next request has another one.
type Broken struct{ Err error }

func (b *Broken) Error() string { return b.Err.Error() }
func (b *Broken) Unwrap() error { return b.Err }

// Fits reports whether a request is one for kept connections: it only reads, so
// it can be repeated, it has no body, and it is no watch.
func Fits(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && (r.Body == nil || r.Body == http.NoBody) &&
		!IsUpgrade(r.Header) && !strings.Contains(r.URL.RawQuery, "watch") && !strings.Contains(r.URL.Path, "/watch/")
}

// RoundTrip sends a request for which Fits is true, on a connection that is
// free now. With an error that is not the context's the caller may send the
// request another way; no part of an answer was read.
func (k *ReadPool) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := valid(r.Header); err != nil {
		return nil, err
	}
	c := k.take()
	if c == nil {
		return nil, ErrNone
	}
	resp, err := c.roundTrip(r)
	if err != nil {
		k.drop(c)
		if r.Context().Err() != nil {
			err = r.Context().Err()
		}
		return nil, err
	}
	return resp, nil
}

// Or sends a request that Fits on a connection of k, which kept leads to, or else
// by other; and by other once more, if that says Broken, for what ends one
// connection to a place often ends all of them. One that broke after it was silent
// for long was on its way to nowhere, and the next connection would most likely be
// silent as long again: its error is the answer. Two connections that RoundTripRead
// gave up within seconds are more likely slow than dead, as the second one was
// chosen for being alive; so the last attempt is patient. While nothing comes on a
// kept connection the request is sent by other as well (hedge).
func (k *ReadPool) Or(kept, other func(*http.Request) (*http.Response, error), r *http.Request) (*http.Response, error) {
	began := time.Now()
	failed := func(err error) bool {
		return err != nil && r.Context().Err() == nil && time.Since(began) <= repeatable
	}
	h := k.hedge(other, r)
	resp, err := kept(h.request)
	if instead := h.end(); instead != nil {
		if err == nil {
			_ = resp.Body.Close()
		}
		return instead, nil
	}
	if !failed(err) {
		return resp, err
	}
	resp, err = other(r)
	var broken *Broken
	if failed(err) && errors.As(err, &broken) {
		resp, err = other(r)
	}
	if failed(err) && errors.Is(err, errSilent) {
		resp, err = other(r.WithContext(context.WithValue(r.Context(), patientKey{}, true)))
	}
	if err == nil {
		k.grow()
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

// take gives the connection that was used last, or nil.
func (k *ReadPool) take() *pooledConn {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.idle); n > 0 {
		c := k.idle[n-1]
		k.idle[n-1] = nil
		k.idle = k.idle[:n-1]
		c.timer.Stop()
		return c
	}
	return nil
}

// grow is called when a request that found no connection free went another way,
// and was answered. It makes one more, in the background, if there may be more
// and they are wanted.
func (k *ReadPool) grow() {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	wanted := now.Sub(k.missed) < busy
	k.missed = now
	if wanted && k.open < k.Most && !k.dialing {
		k.open++
		k.dialing = true
		go k.add()
	}
}

func (k *ReadPool) add() {
	conn, err := k.Dial(context.Background())
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dialing = false
	if err != nil {
		k.open--
		return
	}
	c := &pooledConn{Conn: conn, kept: k}
	c.limited = io.LimitedReader{R: conn}
	c.reader, c.writer = bufio.NewReaderSize(&c.limited, bufferSize), bufio.NewWriterSize(conn, bufferSize)
	c.timer = time.AfterFunc(k.IdleTimeout, func() { k.expire(c) })
	k.idle = append(k.idle, c)
}

func (k *ReadPool) put(c *pooledConn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c.timer.Reset(k.IdleTimeout)
	k.idle = append(k.idle, c)
}

// expire closes a connection unless it was taken meanwhile.
func (k *ReadPool) expire(c *pooledConn) {
	k.mu.Lock()
	i := slices.Index(k.idle, c)
	if i >= 0 {
		k.idle = slices.Delete(k.idle, i, i+1)
	}
	k.mu.Unlock()
	if i >= 0 {
		k.drop(c)
	}
}

func (k *ReadPool) drop(c *pooledConn) {
	k.mu.Lock()
	k.open--
	k.mu.Unlock()
	_ = c.Close()
}

type pooledConn struct {
	net.Conn
	kept    *ReadPool
	limited io.LimitedReader
	reader  *bufio.Reader
	writer  *bufio.Writer
	timer   *time.Timer
}

func (c *pooledConn) roundTrip(r *http.Request) (*http.Response, error) {
	stop := context.AfterFunc(r.Context(), func() { _ = c.Close() })
	resp, err := c.exchange(r)
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

// pooledBody gives its connection back when it was read to its end, and closes it
// otherwise.
type pooledBody struct {
	body  io.ReadCloser
	conn  *pooledConn
	stop  func() bool
	again bool // the other side takes another request

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
		// What is there after the end belongs to no request.
		if b.stop() && complete && b.again && b.conn.reader.Buffered() == 0 {
			b.conn.kept.put(b.conn)
			return
		}
		b.conn.kept.drop(b.conn)
	})
}
