package connect

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
)

// upgrade is a request for another protocol, and its two connections once it has
// it. httputil.ReverseProxy copies between them and closes both when one fails;
// upgrade makes that an abort. Only a backend that takes nothing more is no failure
// yet: see upgradeBackend.
type upgrade struct {
	mu      sync.Mutex
	user    net.Conn
	backend net.Conn
	ended   int // directions that ended cleanly
	failed  bool
	deaf    bool // the backend takes nothing more
}

type upgradeKey struct{}

// backendBuffer is how much the kernel may keep of what a backend sends, in bytes, if
// net.core.rmem_max allows it. A kube-apiserver that has closed its connection loses what
// it has not sent yet, when bytes of the user's reach it after that; kubectl exec -i with a
// short command loses output so, which is the less likely the more is taken off its hands.
const backendBuffer = 1 << 20

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
		if tcp := dial.TCPConnOf(got.Conn); tcp != nil {
			_ = tcp.SetReadBuffer(backendBuffer)
		}
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
		resp.Body = &upgradeBackend{upgradeSide{ReadWriteCloser: body, upgrade: u}}
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

// deafen notes that the backend takes nothing more.
func (u *upgrade) deafen() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.deaf = true
}

func (u *upgrade) isDeaf() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.deaf
}

// announcesEnds reports whether the backend's end is told by TLS.
func (u *upgrade) announcesEnds() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.backend.(*tls.Conn)
	return ok
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
	if backend != nil {
		Abort(backend)
	}
	if user != nil {
		Abort(user)
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
	return dial.CloseWrite(s.ReadWriteCloser, func() error { return http.ErrNotSupported })
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

// upgradeBackend is the side that answers. A kube-apiserver closes the connection when a
// command has ended, and resets it if the user's bytes come after that. The bytes that it has
// sent until then are still to be read here and must reach the user. A write that fails
// therefore ends nothing: what follows is thrown away, and the end of what the backend
// has sent says how it ended.
type upgradeBackend struct{ upgradeSide }

func (b *upgradeBackend) Write(p []byte) (int, error) {
	if b.upgrade.isDeaf() {
		return len(p), nil
	}
	if _, err := b.ReadWriteCloser.Write(p); err != nil {
		b.upgrade.deafen()
	}
	return len(p), nil
}

func (b *upgradeBackend) CloseWrite() error {
	if err := b.upgradeSide.CloseWrite(); err != nil {
		b.upgrade.deafen()
	}
	return nil
}

// Read reads what the backend has sent. Without TLS the kernel takes a reset for an end
// once a write has reported it.
func (b *upgradeBackend) Read(p []byte) (int, error) {
	n, err := b.ReadWriteCloser.Read(p)
	if err == io.EOF && b.upgrade.isDeaf() && !b.upgrade.announcesEnds() {
		err = errCutOff
	}
	if err != nil {
		b.upgrade.end(err)
	}
	return n, err
}
