package session

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/frames"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// farewellTimeout is how long a user may take to read why a session ends.
const farewellTimeout = 2 * time.Second

// sessionUpgrade makes a session of an upgrade when the connection is taken over.
type sessionUpgrade struct {
	http.ResponseWriter
	sessions *Registry
	scope    *scope.Scope
	session  *Session
	// tape records the session; nil if none does.
	tape   *tape
	cancel func()
	// remove is set when the session has begun.
	remove func()
}

// Upgrade returns the writer for an upgrade. leave must be called when the request has ended. The
// error is that of a session that must be recorded and cannot be.
func (s *Registry) Upgrade(w http.ResponseWriter, r *http.Request, rs *scope.Scope, cancel func()) (_ http.ResponseWriter, leave func(), err error) {
	u := &sessionUpgrade{ResponseWriter: w, sessions: s, scope: rs, session: s.Describe(rs, kindOf(rs)), cancel: cancel}
	if u.tape, err = s.Recorder.begin(r.Context(), rs, u.session); err != nil {
		return nil, nil, err
	}
	return u, u.leave, nil
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
		Follower: frames.New(u.scope.Upgraded, kind == KindExec || kind == kindAttach || u.tape != nil), Over: make(chan struct{})}
	u.session.started = time.Now()
	u.session.end = c.End
	u.remove = u.sessions.Join(u.session)
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
	// Over is closed when a user who is told has read it, or has had the time to.
	Over chan struct{}
	once sync.Once
}

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
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}

// Read reads what the user sends.
func (c *Conn) Read(p []byte) (int, error) {
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

// sessionWatch is the answer to a watch of a view.
type sessionWatch struct {
	http.ResponseWriter
	session *Session
	// events says how events end, and last is the byte before.
	events eventsForm
	last   byte
	// head is the length of a protobuf event, of which have bytes came, and left those of the
	// event that are to come.
	head       [4]byte
	have, left int
}

// eventsForm is how the events of a watch are separated.
type eventsForm int

const (
	// lineEvents are JSON.
	lineEvents eventsForm = iota + 1
	// frameEvents are protobuf, each behind its length.
	frameEvents
)

// Watch makes a session of a watch of a view, which begins with the context that it returns.
// leave must be called when the watch has ended, by the goroutine that writes.
func (s *Registry) Watch(ctx context.Context, w http.ResponseWriter, rs *scope.Scope) (_ http.ResponseWriter, _ context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	one := s.Describe(rs, kindViewWatch)
	one.end = func() { cancel(ErrEnded) }
	watched := &sessionWatch{ResponseWriter: w, session: one, last: '\n'}
	remove := s.Join(one)
	return watched, ctx, func() {
		remove()
		cancel(nil)
		if one.Why.Load() != nil {
			watched.say()
		}
	}
}

// Unwrap is for http.ResponseController.
func (w *sessionWatch) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *sessionWatch) WriteHeader(code int) {
	header := w.Header()
	switch kind := header.Get("Content-Type"); {
	case code != http.StatusOK || header.Get("Content-Encoding") != "":
	case strings.HasPrefix(kind, "application/json"):
		w.events = lineEvents
	case strings.HasPrefix(kind, "application/vnd.kubernetes.protobuf"):
		w.events = frameEvents
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *sessionWatch) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.session.out.Add(int64(n))
	if n > 0 {
		w.last = p[n-1]
	}
	if w.events == frameEvents {
		w.follow(p[:n])
	}
	return n, err
}

// follow follows frames.
func (w *sessionWatch) follow(p []byte) {
	for len(p) > 0 {
		if w.have < len(w.head) {
			n := copy(w.head[w.have:], p)
			w.have, p = w.have+n, p[n:]
			w.left = int(binary.BigEndian.Uint32(w.head[:]))
		}
		if w.have == len(w.head) {
			n := min(w.left, len(p))
			if w.left, p = w.left-n, p[n:]; w.left == 0 {
				w.have = 0
			}
		}
	}
}

// say adds an ERROR event, if the last one is whole.
func (w *sessionWatch) say() {
	var event []byte
	switch {
	case w.events == lineEvents && w.last == '\n':
		event = endedEvent()
	case w.events == frameEvents && w.have == 0:
		event = endedFrame()
	default:
		return
	}
	control := http.NewResponseController(w.ResponseWriter)
	_ = control.SetWriteDeadline(time.Now().Add(farewellTimeout)) // if it cannot be set, the connection's end ends the write
	if _, err := w.Write(event); err == nil {
		_ = control.Flush() // the user may be gone
	}
}

// endedEvent is the last event of a watch whose session was ended.
func endedEvent() []byte {
	object, err := json.Marshal(EndedStatus())
	if err != nil {
		return nil // a Status has nothing that cannot be encoded
	}
	return fmt.Appendf(nil, "{\"type\":\"ERROR\",\"object\":%s}\n", object)
}

// endedFrame is the same in protobuf, behind its length.
func endedFrame() []byte {
	status := EndedStatus()
	message, err := status.Marshal()
	if err != nil {
		return nil // a Status has nothing that cannot be encoded
	}
	const head = 4
	frame := merge.AppendProtobufEvent(make([]byte, head), string(watch.Error), merge.AppendProtobufDocument(nil, status.TypeMeta, message))
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-head))
	return frame
}
