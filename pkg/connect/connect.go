package connect

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
)

// Accept answers a CONNECT request with 200 and returns the connection that
// follows. The caller must close it. With an error that is
// http.ErrAbortHandler the client is gone; with any other nothing was answered
// yet.
func Accept(w http.ResponseWriter, r *http.Request) (io.ReadWriteCloser, error) {
	controller := http.NewResponseController(w)
	if r.ProtoMajor == 2 {
		w.WriteHeader(http.StatusOK)
		return &h2Stream{r.Body, w, controller}, controller.Flush()
	}
	conn, buffered, err := controller.Hijack()
	if err != nil {
		return nil, fmt.Errorf("taking over the connection: %w", err)
	}
	// The server's limits were for a request.
	_ = conn.SetDeadline(time.Time{})
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = conn.Close() // it is gone
		return nil, http.ErrAbortHandler
	}
	return withEarly(conn, buffered.Reader)
}

// Refusal is an answer other than 200. Its Body is at most 64 KiB, in memory.
type Refusal struct {
	Code   int
	Status string // the line: the code and what the other side says of it
	Body   []byte
}

func (e *Refusal) Error() string { return fmt.Sprintf("CONNECT was answered with %q", e.Status) }

// maxRefusal bounds how much of an answer is read that refuses.
const maxRefusal = 64 << 10

// Ask sends a CONNECT request for a target, host:port, over conn and waits for
// the answer as long as ctx allows. If it fails conn must be closed; the error is
// a *Refusal if the other side answered something else than 200. Ask
// returns conn itself, unless something has come behind the answer: that is read
// first then.
func Ask(ctx context.Context, conn net.Conn, target string, header http.Header) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	there, err := ask(conn, &http.Request{Method: http.MethodConnect, URL: &url.URL{Host: target}, Host: target, Header: header})
	if !stop() {
		return nil, fmt.Errorf("waiting for the answer to CONNECT: %w", context.Cause(ctx))
	}
	return there, err
}

func ask(conn net.Conn, r *http.Request) (net.Conn, error) {
	if err := r.Write(conn); err != nil {
		return nil, fmt.Errorf("sending CONNECT: %w", err)
	}
	reader := bufio.NewReader(&io.LimitedReader{R: conn, N: httprelay.MaxHeaderBytes + maxRefusal})
	resp, err := http.ReadResponse(reader, r)
	if err != nil {
		return nil, fmt.Errorf("reading the answer to CONNECT: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return withEarly(conn, reader)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		return nil, fmt.Errorf("reading the answer to CONNECT: %w", err)
	}
	return nil, &Refusal{resp.StatusCode, resp.Status, body}
}

// early is a connection of which a part was read already.
type early struct {
	net.Conn
	read []byte
}

// withEarly takes what was read already out of reader, and everything else from
// conn itself: the end that a server's reader comes upon would end the request.
func withEarly(conn net.Conn, reader *bufio.Reader) (net.Conn, error) {
	if reader.Buffered() == 0 {
		return conn, nil
	}
	read, err := reader.Peek(reader.Buffered())
	return &early{conn, bytes.Clone(read)}, err
}

func (c *early) Read(p []byte) (int, error) {
	if len(c.read) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.read)
	c.read = c.read[n:]
	return n, nil
}

// NetConn is what crypto/tls calls the connection below.
func (c *early) NetConn() net.Conn { return c.Conn }

func (c *early) CloseWrite() error { return dial.CloseWrite(c.Conn, c.Close) }

// h2Stream is a CONNECT request of HTTP/2.
type h2Stream struct {
	io.ReadCloser
	w          io.Writer
	controller *http.ResponseController
}

func (s *h2Stream) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err == nil {
		err = s.controller.Flush()
	}
	return n, err
}

// Abort resets the stream by a write deadline in the past, after which net/http resets
// it. The handler's clean end then comes too late.
func (s *h2Stream) Abort(error) {
	_ = s.controller.SetWriteDeadline(time.Unix(1, 0))
	_ = s.Close()
}
