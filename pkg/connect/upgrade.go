package connect

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
)

// upgrade is a request for another protocol, and its two connections once it has
// it. httputil.ReverseProxy copies between them and closes both when one fails;
// upgrade makes that an abort.
type upgrade struct {
	mu      sync.Mutex
	user    net.Conn
	backend net.Conn
	ended   int // directions that ended cleanly
	failed  bool
}

type upgradeKey struct{}

// Upgrade returns what httputil.ReverseProxy.ServeHTTP is to be called with for a
// request that asks for another protocol, so that a connection that is cut off on
// one side is aborted on the other. The proxy's ModifyResponse must call
// Upgraded.
func Upgrade(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	u := &upgrade{}
	ctx := context.WithValue(r.Context(), upgradeKey{}, u)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.backend = got.Conn
	}})
	return &upgradeWriter{w, u}, r.WithContext(ctx)
}

// Upgraded prepares the answer to a request that Upgrade prepared.
func Upgraded(resp *http.Response) {
	u, ok := resp.Request.Context().Value(upgradeKey{}).(*upgrade)
	if !ok || resp.StatusCode != http.StatusSwitchingProtocols {
		return
	}
	if body, ok := resp.Body.(io.ReadWriteCloser); ok {
		resp.Body = &upgradeSide{ReadWriteCloser: body, upgrade: u}
	}
}

// end notes how a direction ended.
func (u *upgrade) end(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if errors.Is(err, io.EOF) {
		u.ended++
		return
	}
	u.failed = true
}

// close aborts both connections if one of them has failed, or is closed before
// both have ended: then the request was canceled.
func (u *upgrade) close(side io.Closer) error {
	u.mu.Lock()
	cut, user, backend := u.failed || u.ended < 2, u.user, u.backend
	u.mu.Unlock()
	if !cut {
		return side.Close()
	}
	if user != nil {
		Abort(user)
	}
	if backend != nil {
		Abort(backend)
	}
	return side.Close() // releases what is above the connection
}

// upgradeWriter is a http.ResponseWriter whose connection is a side.
type upgradeWriter struct {
	http.ResponseWriter
	upgrade *upgrade
}

// Unwrap is for http.ResponseController.
func (w *upgradeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack is part of http.Hijacker.
func (w *upgradeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.upgrade.mu.Lock()
	w.upgrade.user = conn
	w.upgrade.mu.Unlock()
	return &upgradeUser{conn, &upgradeSide{ReadWriteCloser: conn, upgrade: w.upgrade}}, buffer, nil
}

// upgradeSide is one of the two connections.
type upgradeSide struct {
	io.ReadWriteCloser
	upgrade *upgrade
}

func (s *upgradeSide) Read(p []byte) (int, error) {
	n, err := s.ReadWriteCloser.Read(p)
	if err != nil {
		s.upgrade.end(err)
	}
	return n, err
}

func (s *upgradeSide) Write(p []byte) (int, error) {
	n, err := s.ReadWriteCloser.Write(p)
	if err != nil {
		s.upgrade.end(err)
	}
	return n, err
}

func (s *upgradeSide) CloseWrite() error {
	half, ok := s.ReadWriteCloser.(interface{ CloseWrite() error })
	if !ok {
		return http.ErrNotSupported
	}
	return half.CloseWrite()
}

func (s *upgradeSide) Close() error { return s.upgrade.close(s.ReadWriteCloser) }

// upgradeUser is the side that is a net.Conn.
type upgradeUser struct {
	net.Conn
	side *upgradeSide
}

func (c *upgradeUser) Read(p []byte) (int, error)  { return c.side.Read(p) }
func (c *upgradeUser) Write(p []byte) (int, error) { return c.side.Write(p) }
func (c *upgradeUser) CloseWrite() error           { return c.side.CloseWrite() }
func (c *upgradeUser) Close() error                { return c.side.Close() }
