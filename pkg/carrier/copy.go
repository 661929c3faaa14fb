package carrier

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
)

// Write is part of net.Conn. Each 64 KiB go out as one frame in one write of
// the transport, so that TLS makes full records.
func (cn *Conn) Write(p []byte) (int, error) {
	if err := cn.lockWrite(); err != nil {
		return 0, err
	}
	defer func() { <-cn.c.wsem }()
	buf := buffers.Get().(*[MaxFrame]byte)
	defer buffers.Put(buf)
	total := 0
	for len(p) > 0 {
		n := copy(buf[HeaderSize:], p)
		if err := cn.writeData(buf, n); err != nil {
			return total, err
		}
		total += n
		p = p[n:]
	}
	return total, nil
}

// writeData writes a DATA frame whose n bytes of payload are in place; wsem is
// held. A frame of which a part was written before a deadline counts as
// written: the rest goes out before anything else does.
func (cn *Conn) writeData(buf *[MaxFrame]byte, n int) error {
	if err := cn.flushPending(); err != nil {
		return err
	}
	AppendHeader(buf[:0], FrameData, n)
	m, err := cn.c.nc.Write(buf[:HeaderSize+n])
	if err == nil {
		return nil
	}
	if err = cn.writeError(err); m > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		cn.c.wpend = append([]byte(nil), buf[m:HeaderSize+n]...)
		return nil
	}
	return err
}

// WriteFrom sends n bytes that r holds already, such as a message in memory. Nothing is
// copied: r reads into the frames, which are as large as they can be. If r may still
// have to wait for bytes, use ReadFrom.
func (cn *Conn) WriteFrom(r io.Reader, n int) (total int64, err error) {
	if err := cn.lockWrite(); err != nil {
		return 0, err
	}
	defer func() { <-cn.c.wsem }()
	buf := buffers.Get().(*[MaxFrame]byte)
	defer buffers.Put(buf)
	for n > 0 {
		size := min(n, MaxFrame-HeaderSize)
		if _, err := io.ReadFull(r, buf[HeaderSize:HeaderSize+size]); err != nil {
			return total, &readFailure{err}
		}
		if err := cn.writeData(buf, size); err != nil {
			return total, err
		}
		n -= size
		total += int64(size)
	}
	return total, nil
}

// ReadFrom is part of io.ReaderFrom: it sends what it reads from r until the end,
// and does not send FIN. Nothing that is long is copied: r reads into the frame. No frame is
// held while nothing arrives on a TCP connection, and none but after a long read on others.
func (cn *Conn) ReadFrom(r io.Reader) (int64, error) {
	read := lazyReader(r)
	var total int64
	for {
		buf, n, rerr := read()
		if n > 0 {
			err := cn.lockWrite()
			if err == nil {
				err = cn.writeData(buf, n)
				<-cn.c.wsem
			}
			if err != nil {
				buffers.Put(buf)
				return total, err
			}
			total += int64(n)
		}
		if buf != nil {
			buffers.Put(buf)
		}
		if rerr == io.EOF {
			return total, nil
		}
		if rerr != nil {
			return total, &readFailure{rerr}
		}
	}
}

// readFailure marks an error of the reader given to ReadFrom.
type readFailure struct{ error }

func (f *readFailure) Unwrap() error { return f.error }

// WriteTo is part of io.WriterTo: it writes everything up to the peer's FIN.
func (cn *Conn) WriteTo(w io.Writer) (int64, error) {
	if err := cn.lockRead(); err != nil {
		if err == io.EOF {
			err = nil
		}
		return 0, err
	}
	n, fin, err := cn.writeTo(w)
	if fin {
		go cn.c.watch()
	} else {
		<-cn.c.rsem
	}
	return n, err
}

// writeTo is WriteTo with the right to read, and leaves that where it is.
func (cn *Conn) writeTo(w io.Writer) (total int64, fin bool, err error) {
	s := newScanner(cn)
	defer func() {
		s.putBack()
		if fin {
			cn.gotFIN()
		}
	}()
	for {
		payload, fin, err := s.payload()
		if len(payload) > 0 {
			n, werr := w.Write(payload)
			total += int64(n)
			if werr != nil {
				return total, fin, werr
			}
		}
		if fin || err != nil {
			return total, fin, err
		}
	}
}

// Relay carries bytes both ways between a connection and its target until both
// directions have ended, and closes both. An abnormal end of one side becomes
// an abnormal end of the other. The error is that of the side that broke.
func Relay(cn *Conn, target net.Conn) error {
	up := make(chan error, 1)
	cn.hook(func(*Error) { _ = target.SetDeadline(longAgo) })
	defer guard(cn)()
	cn.readWith(func(ended error) (fin bool) {
		err := ended
		if err == nil {
			_, fin, err = cn.writeTo(target)
		} else if err == io.EOF {
			err = nil
		}
		if err == nil {
			err = dial.CloseWrite(target, func() error { return target.SetWriteDeadline(time.Now()) })
		}
		if err != nil {
			cn.Abort(err)
			_ = target.SetDeadline(longAgo)
		}
		up <- err
		return fin
	})
	_, down := cn.ReadFrom(target)
	if down == nil {
		down = cn.CloseWrite()
	}
	if down != nil {
		cn.Abort(down)
	}
	err := <-up
	delivered := err == nil // to the target's socket, FIN included
	if err == nil {
		err = down
	} else if down != nil && !isTimeout(down) {
		err = down
	}
	if tcp := dial.TCPConnOf(target); tcp != nil && !delivered {
		// Before TLS says that this is a clean end.
		_ = tcp.SetLinger(0)
		_ = tcp.Close()
	}
	_ = target.Close()
	_ = cn.Close()
	return err
}

// hook sets what is called if the carrier ends while this is open.
func (cn *Conn) hook(f func(*Error)) {
	cn.c.mu.Lock()
	err := cn.err
	cn.onFail = f
	cn.c.mu.Unlock()
	if err != nil {
		f(err)
	}
}

// guardInterval is how often the transports of joined connections are looked
// at.
const guardInterval = 10 * time.Second

// guard ends connections whose transports have broken while nothing reads from them: a
// connection that waits for a target which accepts no more data does not read, and
// would not notice until the target ends. It runs until stop is called.
//
// It detects a reset, and a peer that is gone silently. It does not detect a peer that
// ended cleanly, since what it sent last must still be delivered.
func guard(conns ...*Conn) (stop func()) {
	g := &guarded{}
	for _, cn := range conns {
		if tcp := dial.TCPConnOf(cn.c.nc); tcp != nil {
			g.conns, g.tcp = append(g.conns, cn), append(g.tcp, tcp)
		}
	}
	if len(g.conns) == 0 {
		return func() {}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer = time.AfterFunc(guardInterval, g.look)
	return g.stop
}

type guarded struct {
	conns []*Conn
	tcp   []*net.TCPConn // of each

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

func (g *guarded) look() {
	for i, tcp := range g.tcp {
		if dial.IsBroken(tcp) {
			cn := g.conns[i]
			cn.c.failIf(func() bool { return cn.c.cur == cn }, cutOff(errTransportBroke), keepQuiet)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.stopped {
		g.timer.Reset(guardInterval)
	}
}

func (g *guarded) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
	g.timer.Stop()
}

var errTransportBroke = errors.New("the transport broke while nothing was read from it")
