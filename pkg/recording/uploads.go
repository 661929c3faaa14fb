package recording

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// answerTimeout is how long the Service may take to end a recording.
const answerTimeout = 30 * time.Second

// Service is a server that takes recordings, each by one PUT.
type Service struct {
	// URL is what the paths of recordings are added to.
	URL *url.URL
	// Dial makes a TLS connection to a server that it has verified, for HTTP/1.1.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Token returns a bearer token. It is nil if none is sent.
	Token func() (string, error)
}

// ServiceError is why a Service has not taken a recording. Its text is for users, and says
// nothing of addresses; Cause may.
type ServiceError struct {
	text  string
	Cause error
}

func (e *ServiceError) Error() string { return "the Service of recordings " + e.text }

// Unwrap returns the cause.
func (e *ServiceError) Unwrap() error { return e.Cause }

// uploads is a place at a Service.
type uploads struct {
	service *Service
	written prometheus.Counter
}

func newUploads(s *Service, written prometheus.Counter) *uploads { return &uploads{s, written} }

// transport makes one connection. Nothing is sent twice.
func (u *uploads) transport(up *upload) *http.Transport {
	return &http.Transport{
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := u.service.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &uploadConn{conn, up}, nil
		},
		DisableKeepAlives: true,
		// Without a word of the server the body would be sent; it is given up before.
		ExpectContinueTimeout:  2 * openTimeout,
		ResponseHeaderTimeout:  answerTimeout,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// uploadConn is the connection of an upload. Once it has ended, net/http waits for more of the
// request before it says so, and an idle session has no more.
type uploadConn struct {
	net.Conn
	upload *upload
}

func (c *uploadConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		// In its own words: EOF would be the end of a whole recording.
		_ = c.upload.to.CloseWithError(fmt.Errorf("reading the answer: %w", err)) // never fails
	}
	return n, err
}

// run has nothing to do: what becomes of recordings is the Service's business.
func (u *uploads) run(context.Context) {}

// create returns when the Service has said that it reads the recording.
func (u *uploads) create(path string, _ owner) (sink, error) {
	r, err := http.NewRequest(http.MethodPut, u.service.URL.JoinPath(path).String(), nil)
	if err != nil {
		return nil, &ServiceError{"cannot be asked", err}
	}
	r.Header.Set("Content-Type", "application/x-asciicast")
	r.Header.Set("Expect", "100-continue")
	r.Header.Set("If-None-Match", "*") // nothing is overwritten
	if u.service.Token != nil {
		token, err := u.service.Token()
		if err != nil {
			return nil, &ServiceError{"needs a token, which cannot be read", err}
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	from, to := io.Pipe()
	up := &upload{to: to, from: from, written: u.written, over: make(chan struct{})}
	ctx, abort := context.WithCancelCause(context.Background())
	up.abort = func(err error) {
		abort(err)
		_ = to.CloseWithError(err) // never fails
	}
	begun := make(chan struct{})
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got100Continue: sync.OnceFunc(func() { close(begun) })})
	r.Body, r.ContentLength = up, -1
	go up.send(u.transport(up), r.WithContext(ctx))
	late := time.AfterFunc(openTimeout, func() { up.abort(errStalled) })
	defer late.Stop()
	select {
	case <-begun:
		return up, nil
	case <-up.over:
		return nil, up.err
	}
}

// upload is a recording on its way.
type upload struct {
	to      *io.PipeWriter
	from    *io.PipeReader
	written prometheus.Counter
	abort   func(error)
	// ended says that the request has the end of the recording.
	ended atomic.Bool
	// over is closed when there is an answer, or will be none; err is why it is no good one.
	over chan struct{}
	err  error
}

// send sends the request, once.
func (u *upload) send(transport *http.Transport, r *http.Request) {
	defer close(u.over)
	resp, err := transport.RoundTrip(r)
	cause := context.Cause(r.Context())
	switch {
	case cause != nil:
		u.err = cause
	case err != nil:
		u.err = &ServiceError{"cannot be reached", err}
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		u.err = &ServiceError{text: fmt.Sprintf("answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))}
	case !u.ended.Load():
		u.err = &ServiceError{text: "has answered before the recording's end"}
	}
	if err == nil {
		resp.Body.Close()
	}
	u.abort(u.err) // what waits to be sent does so in vain
}

// Read is for the request.
func (u *upload) Read(p []byte) (int, error) {
	n, err := u.from.Read(p)
	if errors.Is(err, io.EOF) {
		u.ended.Store(true)
	}
	return n, err
}

// Close is for the request, which reads no more.
func (u *upload) Close() error { return u.from.Close() }

// Write returns when the request has all, of which as much may be on its way as there is room for
// in the kernel.
func (u *upload) Write(p []byte) (int, error) {
	late := time.AfterFunc(stalledAfter, func() { u.abort(errStalled) })
	defer late.Stop()
	n, err := u.to.Write(p)
	u.written.Add(float64(n))
	if err != nil {
		<-u.over
		err = u.err
	}
	return n, err
}

func (u *upload) check() error {
	select {
	case <-u.over:
		return u.err
	default:
		return nil
	}
}

// discard leaves a recording whose end says that the session has not begun: what is sent
// is not taken back.
func (u *upload) discard() bool { return false }

// close waits for the answer.
func (u *upload) close() error {
	late := time.AfterFunc(answerTimeout, func() { u.abort(errStalled) })
	defer late.Stop()
	_ = u.to.Close() // never fails
	<-u.over
	return u.err
}
