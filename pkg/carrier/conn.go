package carrier

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// Addr is the address of a target's connection, as the side that dialed it
// reported it.
type Addr string

// Network is part of net.Addr.
func (Addr) Network() string { return "tcp" }

func (a Addr) String() string { return string(a) }

// Conn is a tunnelled connection. It is a net.Conn with CloseWrite; all its
// methods may be called from several goroutines. Reads end with io.EOF only
// after the peer's FIN; every other end is an *Error.
type Conn struct {
	c             *Carrier
	local, remote Addr
	over          chan struct{} // closed when nothing more can be read
	closing       chan struct{} // closed by Close, with c.mu held

	// Guarded by c.mu.
	finSent, finReceived bool
	err                  *Error
	onFail               func(*Error)
	reader               func(error) (fin bool) // see readWith

	readBy, writeBy atomic.Pointer[time.Time] // deadlines; nil or zero = none
}

var _ net.Conn = &Conn{}

func newConn(c *Carrier, local, remote Addr) *Conn {
	return &Conn{c: c, local: local, remote: remote, over: make(chan struct{}), closing: make(chan struct{})}
}

// LocalAddr is the near end of the target's connection seen from the opener,
// and the target itself seen from the acceptor.
func (cn *Conn) LocalAddr() net.Addr { return cn.local }

// RemoteAddr is the other end.
func (cn *Conn) RemoteAddr() net.Addr { return cn.remote }

// Carrier is what carries the connection.
func (cn *Conn) Carrier() *Carrier { return cn.c }

// fail is called by the carrier once it ended while this was open.
func (cn *Conn) fail(err *Error) {
	cn.c.mu.Lock()
	cn.err = err
	hook, read := cn.onFail, cn.reader
	cn.reader = nil
	if !cn.finReceived {
		close(cn.over)
	}
	cn.c.mu.Unlock()
	if hook != nil {
		hook(err)
	}
	if read != nil {
		read(err)
	}
}

// userClosed reports whether Close was called.
func (cn *Conn) userClosed() bool {
	select {
	case <-cn.closing:
		return true
	default:
		return false
	}
}

// readEnd says why nothing can be read any more, or nil.
func (cn *Conn) readEnd() error {
	cn.c.mu.Lock()
	defer cn.c.mu.Unlock()
	switch {
	case cn.userClosed():
		return net.ErrClosed
	case cn.finReceived:
		return io.EOF
	case cn.err != nil:
		return cn.err
	case cn.c.cur != cn:
		return cn.c.err // about to be told by fail
	}
	return nil
}

func (cn *Conn) writeEnd() error {
	cn.c.mu.Lock()
	defer cn.c.mu.Unlock()
	switch {
	case cn.userClosed():
		return net.ErrClosed
	case cn.err != nil:
		return cn.err
	case cn.finSent:
		return errWriteClosed
	case cn.c.cur != cn:
		return cn.c.err
	}
	return nil
}

var errWriteClosed = &net.OpError{Op: "write", Net: "carrier", Err: errors.New("sending side is closed")}

// passed compares by the monotonic clock, as the transport does.
func passed(deadline *atomic.Pointer[time.Time]) bool {
	d := deadline.Load()
	return d != nil && !d.IsZero() && !time.Now().Before(*d)
}

// lockRead waits for the right to read.
func (cn *Conn) lockRead() error {
	if err := cn.readEnd(); err != nil {
		return err
	}
	if passed(&cn.readBy) {
		return os.ErrDeadlineExceeded
	}
	select {
	case cn.c.rsem <- struct{}{}:
	case <-cn.over:
		return cn.readEnd()
	case <-cn.closing: // what lingers may have the right for long
		return net.ErrClosed
	}
	if err := cn.readEnd(); err != nil {
		<-cn.c.rsem
		return err
	}
	return nil
}

// lockWrite waits for the right to write, and writes what an earlier write
// that timed out has left.
func (cn *Conn) lockWrite() error {
	select {
	case cn.c.wsem <- struct{}{}:
	case <-cn.c.done:
		return cn.writeEnd()
	case <-cn.closing:
		return net.ErrClosed
	}
	err := cn.writeEnd()
	if err == nil && passed(&cn.writeBy) {
		err = os.ErrDeadlineExceeded
	}
	if err == nil {
		err = cn.flushPending()
	}
	if err != nil {
		<-cn.c.wsem
	}
	return err
}

func (cn *Conn) flushPending() error {
	if len(cn.c.wpend) == 0 {
		return nil
	}
	n, err := cn.c.nc.Write(cn.c.wpend)
	cn.c.wpend = cn.c.wpend[n:]
	return cn.writeError(err)
}

// Read is part of net.Conn.
func (cn *Conn) Read(p []byte) (int, error) {
	if err := cn.lockRead(); err != nil {
		return 0, err
	}
	n, err := cn.readLocked(p)
	if err == io.EOF { // it goes to the watcher
		go cn.c.watch()
	} else {
		<-cn.c.rsem
	}
	return n, err
}

func (cn *Conn) readLocked(p []byte) (int, error) {
	c := cn.c
	for c.rem == 0 {
		fin, err := cn.nextData()
		if fin {
			return 0, io.EOF
		}
		if err != nil {
			return 0, err
		}
	}
	if len(p) > c.rem {
		p = p[:c.rem]
	}
	var n int
	var err error
	if c.lo < c.hi {
		n = copy(p, c.small[c.lo:c.hi])
		c.lo += n
	} else if n, err = c.nc.Read(p); n > 0 {
		err = nil
	}
	c.rem -= n
	return n, cn.readError(err)
}

// nextData reads up to the payload of the next DATA frame, or the FIN.
func (cn *Conn) nextData() (fin bool, err error) {
	c := cn.c
	t, payload, ok, err := c.nextFrame()
	if err != nil {
		c.fail(cutOff(err), tellPeer)
		return false, cn.readEnd()
	}
	if !ok {
		return false, cn.readError(c.fill())
	}
	switch t {
	case FrameData:
		_, c.rem, _ = ParseHeader(c.small[c.lo:c.hi])
		c.lo += HeaderSize
		return false, nil
	case FrameFin:
		cn.gotFIN()
		return true, nil
	}
	return false, cn.unexpected(t, payload)
}

// unexpected ends the carrier on a frame that is neither DATA nor FIN.
func (cn *Conn) unexpected(t FrameType, payload []byte) error {
	e, tell := violation("frame of type %d out of place", t), tellPeer
	if t == FrameReset {
		if r, err := decodeError(payload, true); err == nil {
			e, tell = r, keepQuiet
		}
	}
	cn.c.fail(e, tell)
	return cn.readEnd()
}

// gotFIN returns the right to read to the carrier. The caller owns rsem, must
// not release it, and runs the watcher next.
func (cn *Conn) gotFIN() {
	c := cn.c
	c.mu.Lock()
	c.watching = true
	if c.cur == cn {
		cn.finReceived = true
		close(cn.over)
		_ = c.nc.SetReadDeadline(time.Time{})
	}
	c.release(cn)
	rests := c.rests()
	c.mu.Unlock()
	if rests {
		c.tellIdle()
	}
}

// readError turns an error of the transport into one of the connection.
func (cn *Conn) readError(err error) error {
	if err == nil {
		return nil
	}
	if isTimeout(err) {
		if end := cn.readEnd(); end != nil {
			return end
		}
		return os.ErrDeadlineExceeded
	}
	cn.c.fail(cutOff(err), keepQuiet)
	return cn.readEnd()
}

func (cn *Conn) writeError(err error) error {
	if err == nil {
		return nil
	}
	if end := cn.writeEnd(); end != nil {
		return end
	}
	if isTimeout(err) {
		return os.ErrDeadlineExceeded
	}
	cn.c.fail(cutOff(err), keepQuiet)
	return cn.writeEnd()
}

// SetDeadline is part of net.Conn.
func (cn *Conn) SetDeadline(t time.Time) error {
	return errors.Join(cn.SetReadDeadline(t), cn.SetWriteDeadline(t))
}

// SetReadDeadline is part of net.Conn.
func (cn *Conn) SetReadDeadline(t time.Time) error {
	return cn.setDeadline(t, &cn.readBy, cn.c.nc.SetReadDeadline, func() bool { return !cn.finReceived })
}

// SetWriteDeadline is part of net.Conn. Over TLS a write that timed out half
// way leaves a connection that cannot be written to any more (crypto/tls).
func (cn *Conn) SetWriteDeadline(t time.Time) error {
	return cn.setDeadline(t, &cn.writeBy, cn.c.nc.SetWriteDeadline, func() bool { return !cn.finSent })
}

func (cn *Conn) setDeadline(t time.Time, own *atomic.Pointer[time.Time], set func(time.Time) error, applies func() bool) error {
	cn.c.mu.Lock()
	defer cn.c.mu.Unlock()
	if cn.userClosed() {
		return net.ErrClosed
	}
	own.Store(&t)
	if cn.c.cur != cn || !applies() {
		return nil
	}
	return set(t)
}
