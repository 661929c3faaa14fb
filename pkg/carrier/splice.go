package carrier

import (
	"io"
	"sync/atomic"
)

// Splice forwards frames between two connections until both directions have
// ended; after a clean end both carriers are idle. It passes an abnormal end of one
// on to the other with its code, and calls ended when both directions have ended, with
// the bytes that were forwarded from a and from b, headers of frames included. Nothing
// else may use a and b. Splice does not wait.
func Splice(a, b *Conn, ended func(fromA, fromB int64)) {
	a.hook(func(e *Error) { b.Abort(e) })
	b.hook(func(e *Error) { a.Abort(e) })
	stop := guard(a, b)
	var over atomic.Int32 // directions
	var fromA, fromB int64
	each := func(dst, src *Conn, bytes *int64) func(error) bool {
		return func(reason error) (fin bool) {
			fin, *bytes = forward(dst, src, reason)
			if over.Add(1) == 2 {
				stop()
				ended(fromA, fromB)
			}
			return fin
		}
	}
	a.readWith(each(b, a, &fromA))
	b.readWith(each(a, b, &fromB))
}

// forward forwards frames from src to dst, and reports whether the FIN was among
// them and how many bytes there were. The caller has the right to read from src,
// unless that has ended.
func forward(dst, src *Conn, ended error) (fin bool, bytes int64) {
	var err error
	switch ended {
	case nil:
		s := newScanner(src)
		fin, err = s.forward(dst)
		bytes = s.passed
	case io.EOF:
		err = dst.CloseWrite()
	default:
		err = ended
	}
	if err != nil {
		src.Abort(err)
		dst.Abort(err)
	}
	return fin, bytes
}

// forward reports whether the FIN was forwarded, too.
func (s *scanner) forward(dst *Conn) (fin bool, err error) {
	defer s.free()
	c := s.cn.c
	for {
		pass, rem, last := s.whole()
		c.rem = rem
		if last == FrameFin {
			// First what came before: once the watcher reads on, a RESET may
			// follow that ends both.
			if err := dst.lockWrite(); err != nil {
				return false, err
			}
			if err := dst.writeFIN(pass); err != nil {
				return false, err
			}
			s.passed += int64(len(pass))
			s.putBack()
			s.cn.gotFIN()
			return true, nil
		}
		if len(pass) > 0 {
			if werr := dst.writeRaw(pass, rem); werr != nil {
				return false, werr
			}
			s.passed += int64(len(pass))
		}
		if last != 0 { // a RESET counts after what came before it
			return false, s.unexpected()
		}
		if err := s.read(); err != nil {
			return false, err
		}
	}
}

// whole returns the bytes that can be forwarded as they are, how many bytes of
// the last frame are still to come, and what follows, if it is not DATA: FIN, which
// is taken out of the buffer, or, as FrameReset, anything else, which is left to
// unexpected.
func (s *scanner) whole() (pass []byte, rem int, last FrameType) {
	c := s.cn.c
	start := s.lo
	for rem = c.rem; s.lo < s.hi; {
		if rem > 0 {
			n := min(rem, s.hi-s.lo)
			s.lo, rem = s.lo+n, rem-n
			continue
		}
		if s.hi-s.lo < HeaderSize {
			break
		}
		t, n, err := ParseHeader(s.buf[s.lo:s.hi])
		if err == nil && t == FrameData {
			s.lo, rem = s.lo+HeaderSize, n
			continue
		}
		if err == nil && s.hi-s.lo < HeaderSize+n {
			break
		}
		pass = s.buf[start:s.lo]
		if err == nil && t == FrameFin {
			s.lo += HeaderSize
			return pass, 0, FrameFin
		}
		return pass, 0, FrameReset
	}
	return s.buf[start:s.lo], rem, 0
}

// unexpected ends the carrier on the frame at lo, which is neither DATA nor FIN, or
// none at all.
func (s *scanner) unexpected() error {
	t, n, err := ParseHeader(s.buf[s.lo:s.hi])
	if err != nil {
		s.cn.c.fail(violation("%v", err), tellPeer)
		return s.cn.readEnd()
	}
	return s.cn.unexpected(t, s.buf[s.lo+HeaderSize:s.lo+HeaderSize+n])
}

// writeRaw writes frames of which the last one lacks rem bytes.
func (cn *Conn) writeRaw(b []byte, rem int) error {
	if err := cn.lockWrite(); err != nil {
		return err
	}
	_, err := cn.c.nc.Write(b)
	cn.c.wrem = rem
	if err != nil {
		cn.c.wrem = len(b) + rem
		err = cn.writeError(err)
	}
	<-cn.c.wsem
	return err
}
