package carrier

import (
	"io"
	"net"
	"os"
	"syscall"
)

// lazyReader returns a function that reads once into a pooled buffer. It takes the
// buffer when the kernel says that there is something to read from a TCP connection,
// so that a silent one holds none. Package dial's connections are such, TLS is not. Other
// readers: readAhead.
func lazyReader(r io.Reader) func() (*[MaxFrame]byte, int, error) {
	conn, ok := r.(interface {
		net.Conn
		syscall.Conn
	})
	var raw syscall.RawConn
	if ok {
		var err error
		raw, err = conn.SyscallConn()
		ok = err == nil
	}
	if !ok {
		return readAhead(r)
	}
	var buf *[MaxFrame]byte
	var n int
	var err error
	try := func(fd uintptr) (done bool) {
		buf = buffers.Get().(*[MaxFrame]byte)
		for {
			if n, err = syscall.Read(int(fd), buf[HeaderSize:]); err != syscall.EINTR {
				break
			}
		}
		if err == syscall.EAGAIN {
			buffers.Put(buf)
			buf = nil
			return false
		}
		return true
	}
	return func() (*[MaxFrame]byte, int, error) {
		n, err = 0, nil
		waited := raw.Read(try)
		switch {
		case waited != nil:
			if _, why := conn.Read(nil); why != nil { // it may have been given up
				waited = why
			}
			return nil, 0, waited
		case err != nil:
			return buf, 0, &net.OpError{Op: "read", Net: "tcp", Source: conn.LocalAddr(), Addr: conn.RemoteAddr(), Err: os.NewSyscallError("read", err)}
		case n == 0:
			return buf, 0, io.EOF
		}
		return buf, n, nil
	}
}
