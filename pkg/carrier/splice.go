package carrier

import "io"

// scanner reads frames in big chunks for WriteTo and Splice, which own rsem.
type scanner struct {
	cn  *Conn
	buf *[MaxFrame]byte
	lo  int // start of what was read but not passed on
	hi  int
}

func newScanner(cn *Conn) *scanner {
	s := &scanner{cn: cn, buf: buffers.Get().(*[MaxFrame]byte)}
	c := cn.c
	s.hi = copy(s.buf[:], c.small[c.lo:c.hi])
	c.lo, c.hi = 0, 0
	return s
}

func (s *scanner) free() { buffers.Put(s.buf) }

// putBack gives the carrier what was read too much.
func (s *scanner) putBack() {
	c := s.cn.c
	if s.hi-s.lo > len(c.small) {
		c.fail(violation("%d bytes follow the last frame", s.hi-s.lo), tellPeer)
		s.lo = s.hi
	}
	c.lo, c.hi = 0, copy(c.small[:], s.buf[s.lo:s.hi])
	s.lo, s.hi = 0, 0
}

// read reads once; what is left of an incomplete frame moves to the front.
func (s *scanner) read() error {
	if s.lo > 0 {
		s.hi = copy(s.buf[:], s.buf[s.lo:s.hi])
		s.lo = 0
	}
	n, err := s.cn.c.nc.Read(s.buf[s.hi:])
	s.hi += n
	if n > 0 {
		return nil
	}
	return s.cn.readError(err)
}

// control handles the frame at lo, which is not DATA. ok is false if it is
// incomplete.
func (s *scanner) control(t FrameType, n int) (fin, ok bool, err error) {
	if s.hi-s.lo < HeaderSize+n {
		return false, false, nil
	}
	payload := s.buf[s.lo+HeaderSize : s.lo+HeaderSize+n]
	s.lo += HeaderSize + n
	if t == FrameFin {
		s.putBack()
		return true, true, nil
	}
	return false, true, s.cn.unexpected(t, payload)
}

// payload gives the next bytes of payload, moved together if they come from
// more than one frame, and whether FIN follows them.
func (s *scanner) payload() (data []byte, fin bool, err error) {
	c := s.cn.c
	for {
		start, end := -1, 0
		for s.lo < s.hi {
			if c.rem > 0 {
				n := min(c.rem, s.hi-s.lo)
				if start < 0 {
					start, end = s.lo, s.lo+n
				} else {
					end += copy(s.buf[end:], s.buf[s.lo:s.lo+n])
				}
				s.lo, c.rem = s.lo+n, c.rem-n
				continue
			}
			if s.hi-s.lo < HeaderSize {
				break
			}
			t, n, perr := ParseHeader(s.buf[s.lo:s.hi])
			if perr != nil {
				c.fail(violation("%v", perr), tellPeer)
				return nil, false, s.cn.readEnd()
			}
			if t == FrameData {
				s.lo, c.rem = s.lo+HeaderSize, n
				continue
			}
			if start >= 0 && t != FrameFin {
				break // data first
			}
			fin, ok, cerr := s.control(t, n)
			if fin || cerr != nil {
				return s.slice(start, end), fin, cerr
			}
			if !ok {
				break
			}
		}
		if start >= 0 {
			return s.buf[start:end], false, nil
		}
		if err := s.read(); err != nil {
			return nil, false, err
		}
	}
}

func (s *scanner) slice(start, end int) []byte {
	if start < 0 {
		return nil
	}
	return s.buf[start:end]
}

// Splice forwards frames between two connections until both directions have
// ended; after a clean end both carriers are idle. An abnormal end of one is
// passed on to the other with its code. Nothing else may use a and b. The
// error is the first abnormal end.
func Splice(a, b *Conn) error {
	a.hook(func(e *Error) { b.Abort(e) })
	b.hook(func(e *Error) { a.Abort(e) })
	back := make(chan error, 1)
	go func() { back <- forward(a, b) }()
	err := forward(b, a)
	if other := <-back; err == nil {
		err = other
	}
	return err
}

// forward forwards frames from src to dst.
func forward(dst, src *Conn) error {
	err := src.lockRead()
	if err == io.EOF {
		err = dst.CloseWrite()
	} else if err == nil {
		s := newScanner(src)
		var fin bool
		if fin, err = s.forward(dst); !fin {
			<-src.c.rsem
		}
		s.free()
	}
	if err != nil {
		src.Abort(err)
		dst.Abort(err)
	}
	return err
}

// forward reports whether the watcher owns src's rsem again.
func (s *scanner) forward(dst *Conn) (fin bool, err error) {
	c := s.cn.c
	for {
		pass, rem, fin, err := s.whole()
		c.rem = rem
		if fin {
			// First what came before: once the watcher reads on, a RESET may
			// follow that ends both.
			if err := dst.lockWrite(); err != nil {
				return false, err
			}
			if err := dst.writeFIN(pass); err != nil {
				return false, err
			}
			s.putBack()
			return true, s.cn.gotFIN()
		}
		if len(pass) > 0 {
			if werr := dst.writeRaw(pass, rem); werr != nil {
				return false, werr
			}
		}
		if err != nil {
			return false, err
		}
		if err := s.read(); err != nil {
			return false, err
		}
	}
}

// whole gives the bytes that can be forwarded as they are, how many bytes of
// the last frame are still to come, and whether FIN follows.
func (s *scanner) whole() (pass []byte, rem int, fin bool, err error) {
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
		if err != nil {
			c.fail(violation("%v", err), tellPeer)
			return nil, 0, false, s.cn.readEnd()
		}
		if t == FrameData {
			s.lo, rem = s.lo+HeaderSize, n
			continue
		}
		if s.hi-s.lo < HeaderSize+n {
			break
		}
		pass = s.buf[start:s.lo]
		payload := s.buf[s.lo+HeaderSize : s.lo+HeaderSize+n]
		s.lo += HeaderSize + n
		if t == FrameFin {
			return pass, 0, true, nil
		}
		return pass, 0, false, s.cn.unexpected(t, payload)
	}
	return s.buf[start:s.lo], rem, false, nil
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
