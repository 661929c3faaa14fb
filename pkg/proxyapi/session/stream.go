package session

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/frames"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// farewellTimeout is how long a user may take to read why a session ends.
const farewellTimeout = 2 * time.Second

// WatchAgain is why a watch ends when the process drains.
const WatchAgain = "the proxy API stops: watch again"

// sessionUpgrade makes a Conn of an upgrade when the connection is taken over.
type sessionUpgrade struct {
	http.ResponseWriter
	scope   *scope.Scope
	session *Session
	// tape records the session; nil if none does.
	tape   *tape
	cancel func()
	// join is called when the session begins, and remove is what it returned.
	join   func(*Conn) (remove func())
	remove func()
}

// Upgrade returns the writer for an upgrade. leave must be called when the request has ended. The
// error is that of a session that must be recorded and cannot be.
func (s *Registry) Upgrade(w http.ResponseWriter, r *http.Request, rs *scope.Scope, cancel func()) (_ http.ResponseWriter, leave func(), err error) {
	u := &sessionUpgrade{ResponseWriter: w, scope: rs, session: s.Describe(rs, kindOf(rs)), cancel: cancel}
	u.join = func(*Conn) func() { return s.Join(u.session) }
	if u.tape, err = s.Recorder.begin(r.Context(), rs, u.session); err != nil {
		return nil, nil, err
	}
	return u, u.leave, nil
}

// UpgradeWatch returns the writer for a watch by WebSocket, which is no session. When draining is
// done the watch ends with a close message, as other watches end then. leave must be called when
// the request has ended.
func UpgradeWatch(draining context.Context, w http.ResponseWriter, rs *scope.Scope, cancel func()) (_ http.ResponseWriter, leave func()) {
	u := &sessionUpgrade{ResponseWriter: w, scope: rs, session: &Session{}, cancel: cancel}
	u.session.Why.Store(&status.New(http.StatusServiceUnavailable, WatchAgain).ErrStatus)
	u.join = func(c *Conn) func() {
		stop := context.AfterFunc(draining, c.End)
		return func() { stop() }
	}
	return u, u.leave
}

func (u *sessionUpgrade) leave() {
	if u.remove != nil {
		u.remove()
	}
	u.tape.end(u.remove != nil)
}

// Unwrap is for http.ResponseController.
func (u *sessionUpgrade) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// Hijack is part of http.Hijacker.
func (u *sessionUpgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	kind := u.session.Status.Kind
	c := &Conn{Conn: conn, Session: u.session, Cancel: u.cancel, tape: u.tape,
		Follower: frames.New(u.scope.Upgraded, kind == kindExec || kind == kindAttach || u.tape != nil), Begun: make(chan struct{}), Over: make(chan struct{})}
	u.session.started = time.Now()
	u.session.end = c.End // Registry.Finish calls it
	u.remove = u.join(c)
	u.tape.follow(c.Follower)
	return c, buffer, nil
}

// Conn is the user's side of an upgraded connection. It changes no byte until the
// session is ended; then the user gets a farewell behind a whole frame, and nothing else,
// and the cluster gets nothing any more.
type Conn struct {
	net.Conn
	Session  *Session
	Follower *frames.Follower
	tape     *tape
	Cancel   func()
	// ending says that the session is ended, and said that nothing more is sent to the user: he was
	// told why, or the cluster has ended its direction before that.
	ending, said atomic.Bool
	// writing holds up what tells the user.
	writing sync.Mutex
	// Begun is closed when the relay reads or writes. Before that the head of the answer may be on its
	// way, which does not come through here.
	Begun chan struct{}
	begin sync.Once
	// Over is closed when a user who is told has read it, or has had the time to.
	Over chan struct{}
	once sync.Once
}

func (c *Conn) began() { c.begin.Do(func() { close(c.Begun) }) }

// finish ends the request of a session that is ended.
func (c *Conn) finish() {
	c.once.Do(func() { close(c.Over) })
	c.Cancel()
}

// Abort cuts the user off. A reset would overtake what is on its way: one who is told why the
// session ends has the time to read it, also if the cluster ends the connection meanwhile.
func (c *Conn) Abort(error) {
	if c.ending.Load() {
		<-c.Over
	}
	connect.Abort(c.Conn)
}

// NetConn is what crypto/tls calls the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends the direction to the user, as the cluster has. He has the time to read what is on
// its way also if the session is ended after that.
func (c *Conn) CloseWrite() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.said.Store(true)
	return c.closeWrite()
}

func (c *Conn) closeWrite() error {
	return dial.CloseWrite(c.Conn, func() error { return http.ErrNotSupported })
}

// Read reads what the user sends.
func (c *Conn) Read(p []byte) (int, error) {
	c.began()
	for {
		c.tape.room()
		n, err := c.Conn.Read(p)
		if !c.ending.Load() {
			c.Session.in.Add(int64(n))
			c.Follower.FromUser(p[:n])
			return n, err
		}
		if err != nil {
			c.finish() // the user has read it
			return 0, err
		}
	}
}

// Write writes to the user.
func (c *Conn) Write(p []byte) (int, error) {
	c.began()
	c.tape.room()
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.said.Load() {
		return len(p), nil
	}
	if !c.ending.Load() {
		c.Follower.ToUser(p)
		n, err := c.Conn.Write(p)
		c.Session.out.Add(int64(n))
		return n, err
	}
	n, ok := c.Follower.Until(p)
	if n, err := c.Conn.Write(p[:n]); err != nil {
		return n, err
	}
	if ok {
		c.say()
	}
	return len(p), nil
}

// End has the user be told, as soon as a frame is whole, and ends the connection. It does not wait
// for that; what comes from either side is not passed on any more when it returns.
func (c *Conn) End() {
	c.ending.Store(true)
	time.AfterFunc(farewellTimeout, c.finish)
	go c.tell()
}

func (c *Conn) tell() {
	select {
	case <-c.Begun:
	case <-c.Over:
		return
	}
	c.writing.Lock() // until the deadline ends a write that waits
	defer c.writing.Unlock()
	if _, ok := c.Follower.Until(nil); ok && !c.said.Load() {
		c.say()
	}
}

// say tells the user why the connection ends. The caller holds writing.
func (c *Conn) say() {
	c.said.Store(true)
	farewell, ok := c.Follower.Farewell(c.Session.Why.Load())
	if !ok {
		c.finish()
		return
	}
	if _, err := c.Conn.Write(farewell); err == nil {
		err = c.closeWrite()
		if err == nil {
			return // the user ends the connection, or the time does
		}
	}
	c.finish()
}

// Connect makes a session of a CONNECT request. leave must be called when it has ended.
func (s *Registry) Connect(here io.ReadWriteCloser, rs *scope.Scope, cancel func()) (_ io.ReadWriteCloser, leave func()) {
	one := s.Describe(rs, kindConnect)
	one.end = cancel
	c := &countedConn{here, one}
	if half, ok := here.(interface{ CloseWrite() error }); ok {
		return &countedHalf{c, half.CloseWrite}, s.Join(one)
	}
	return c, s.Join(one)
}

// countedConn counts the bytes of a user.
type countedConn struct {
	io.ReadWriteCloser
	session *Session
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	c.session.in.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Write(p)
	c.session.out.Add(int64(n))
	return n, err
}

// Abort is for connect.Abort.
func (c *countedConn) Abort(error) { connect.Abort(c.ReadWriteCloser) }

// countedHalf is a countedConn of which one direction can end.
type countedHalf struct {
	*countedConn
	closeWrite func() error
}

func (c *countedHalf) CloseWrite() error { return c.closeWrite() }
