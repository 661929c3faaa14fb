package carrier

import (
	"io"
	"sync"
)

var buffers = sync.Pool{New: func() any { return new([MaxFrame]byte) }}

// scanner reads frames in big chunks for WriteTo and Splice, which own rsem. It
// waits for a frame with the carrier's small buffer, and borrows a big one when
// it knows that the frame needs that.
type scanner struct {
	cn  *Conn
	buf []byte // the small buffer, or big
	big *[MaxFrame]byte
	lo  int // start of what was read but not passed on
	hi  int
	// passed is how many bytes were forwarded.
	passed int64
}

func newScanner(cn *Conn) *scanner {
	c := cn.c
	return &scanner{cn: cn, buf: c.small[:], lo: c.lo, hi: c.hi}
}

func (s *scanner) free() {
	if s.big != nil {
		buffers.Put(s.big)
		s.big = nil
	}
}

// putBack returns to the carrier what was read beyond the frame.
func (s *scanner) putBack() {
	c := s.cn.c
	if s.hi-s.lo > len(c.small) {
		c.fail(violation("%d bytes follow the last frame", s.hi-s.lo), tellPeer)
		s.lo = s.hi
	}
	c.lo, c.hi = 0, copy(c.small[:], s.buf[s.lo:s.hi])
	s.free()
	s.buf, s.lo, s.hi = c.small[:], 0, 0
}

// read reads what is there of one frame, and waits for it.
func (s *scanner) read() error {
	if s.lo == s.hi && s.cn.c.rem == 0 {
		return s.readNext()
	}
	s.makeRoom(s.cn.c.rem)
	return s.readMore()
}

// readNext reads the next frame, which may take any time to come.
// One that fills the small buffer goes on at once, and should be passed on in
// as few pieces as it came in.
func (s *scanner) readNext() error {
	s.free()
	s.buf, s.lo, s.hi = s.cn.c.small[:], 0, 0
	if err := s.readMore(); err != nil || s.hi < len(s.buf) {
		return err
	}
	if t, n, err := ParseHeader(s.buf); err == nil && t == FrameData && HeaderSize+n > s.hi {
		s.makeRoom(HeaderSize + n - s.hi)
		return s.readMore()
	}
	return nil
}

// makeRoom moves what is left of an incomplete frame to the front, of a buffer
// that holds n bytes more.
func (s *scanner) makeRoom(n int) {
	from := s.buf[s.lo:s.hi]
	if s.big == nil && len(from)+n > len(s.buf) {
		s.big = buffers.Get().(*[MaxFrame]byte)
		s.buf = s.big[:]
	}
	s.lo, s.hi = 0, copy(s.buf, from)
}

func (s *scanner) readMore() error {
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
		return true, true, nil
	}
	return false, true, s.cn.unexpected(t, payload)
}

// payload returns the next bytes of payload, moved together if they come from
// more than one frame, and whether FIN follows them. They are good until the
// next call of a method.
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

// shortRead is what a reader that cannot say whether it has something, such as a TLS
// connection, is waited for with: most requests fit, and it is a sixteenth of a frame.
const shortRead = 4 << 10

// readAhead returns a function that reads once from r into a pooled buffer, behind the place of
// a header. It waits with a short buffer of its own, and with a pooled one only after a read
// that has filled the short one: then there is more, as a rule.
func readAhead(r io.Reader) func() (*[MaxFrame]byte, int, error) {
	short, full := make([]byte, shortRead), false
	return func() (*[MaxFrame]byte, int, error) {
		if full {
			buf := buffers.Get().(*[MaxFrame]byte)
			n, err := r.Read(buf[HeaderSize:])
			full = n >= shortRead
			return buf, n, err
		}
		n, err := r.Read(short)
		full = n == shortRead
		buf := buffers.Get().(*[MaxFrame]byte)
		copy(buf[HeaderSize:], short[:n])
		return buf, n, err
	}
}
