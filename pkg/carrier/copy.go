package carrier

import (
	"errors"
	"io"
	"net"
	"os"
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

// ReadFrom is part of io.ReaderFrom: it sends what it reads from r until the end,
// and does not send FIN. Nothing is copied: r reads into the frame. No buffer is held
// while nothing arrives on a TCP connection.
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

// readBehindHeader reads into a borrowed buffer, behind the place of a header.
func readBehindHeader(r io.Reader) (*[MaxFrame]byte, int, error) {
	buf := buffers.Get().(*[MaxFrame]byte)
	n, err := r.Read(buf[HeaderSize:])
	return buf, n, err
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
			err = closeWrite(target)
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

func closeWrite(nc net.Conn) error {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nc.SetWriteDeadline(time.Now())
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
