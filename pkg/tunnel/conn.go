package tunnel

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// maxWrite is the largest message that is sent: konnectivity ends streams
	// with messages of 4 MiB and more, and small ones share the link fairly.
	maxWrite = 32 << 10
	// maxBuffered is how much is held for a reader that does not read.
	maxBuffered = 1 << 20
	// linger is how long what was written may take to be sent after Close.
	linger = 5 * time.Second
)

// link is what a conn needs of the stream below it. Read and Write block, are
// called from one goroutine each, and end when abort was called.
type link interface {
	io.ReadWriter
	// finish says goodbye. It is called once, after the last Write.
	finish()
	// abort releases the stream at once. It may be called at any time.
	abort()
}

// conn makes a net.Conn with deadlines of a link. Two goroutines own the link's
// directions; everything else only uses the buffer between.
type conn struct {
	link          link
	local, remote addr

	readMu  sync.Mutex // one Read at a time
	writeMu sync.Mutex // one Write at a time

	readDeadline, writeDeadline deadline

	mu       sync.Mutex
	buffer   bytes.Buffer
	err      error         // why the link ended, once ended is closed
	readable chan struct{} // holds a token when buffer or err changed
	room     chan struct{} // holds a token when the buffer was drained

	outgoing chan []byte   // handed over to the writing goroutine
	ended    chan struct{} // the link ended
	closed   chan struct{} // Close was called
	wrote    chan struct{} // the writing goroutine is done
	once     sync.Once
}

var _ net.Conn = &conn{}

func newConn(l link, local, remote string) *conn {
	c := &conn{
		link: l, local: addr(local), remote: addr(remote),
		readable: make(chan struct{}, 1), room: make(chan struct{}, 1),
		outgoing: make(chan []byte), ended: make(chan struct{}), closed: make(chan struct{}), wrote: make(chan struct{}),
	}
	go c.readLoop()
	go c.writeLoop()
	return c
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// readLoop moves bytes from the link to the buffer until the link ends. After
// Close it goes on and drops them, so that the stream's end can be seen.
func (c *conn) readLoop() {
	chunk := make([]byte, maxWrite)
	for {
		n, err := c.link.Read(chunk)
		c.mu.Lock()
		if !isClosed(c.closed) {
			c.buffer.Write(chunk[:n])
		}
		full := c.buffer.Len() >= maxBuffered
		if err != nil {
			c.err = err
			close(c.ended)
		}
		c.mu.Unlock()
		signal(c.readable)
		if err != nil {
			return
		}
		if full {
			select {
			case <-c.room:
			case <-c.closed:
			}
		}
	}
}

// writeLoop sends what Write hands over.
func (c *conn) writeLoop() {
	defer close(c.wrote)
	for {
		select {
		case p := <-c.outgoing:
			if _, err := c.link.Write(p); err != nil {
				// The reading side learns why the stream ended.
				c.link.abort()
				return
			}
		case <-c.closed:
			return
		case <-c.ended:
			return
		}
	}
}

func (c *conn) Read(p []byte) (int, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	for {
		switch passed := c.readDeadline.passed(); {
		case isClosed(c.closed):
			return 0, net.ErrClosed
		case isClosed(passed):
			return 0, os.ErrDeadlineExceeded
		default:
			if n, ok, err := c.take(p); ok {
				return n, err
			}
			select {
			case <-c.readable:
			case <-c.closed:
			case <-passed:
			}
		}
	}
}

// take reads from the buffer. It reports whether there was something to read,
// or an error.
func (c *conn) take(p []byte) (n int, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.buffer.Len() == 0 {
		return 0, c.err != nil || len(p) == 0, c.err
	}
	n, _ = c.buffer.Read(p)
	if c.buffer.Len() == 0 && c.buffer.Cap() > 2*maxWrite {
		c.buffer = bytes.Buffer{} // an idle connection must not keep a burst's memory
	}
	if c.buffer.Len() < maxBuffered {
		signal(c.room)
	}
	return n, true, nil
}

func (c *conn) Write(p []byte) (n int, err error) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	for {
		passed := c.writeDeadline.passed()
		switch {
		case isClosed(c.closed):
			return n, net.ErrClosed
		case isClosed(c.ended):
			return n, c.writeError()
		case isClosed(passed):
			return n, os.ErrDeadlineExceeded
		case n == len(p):
			return n, nil
		}
		// The caller may use p again as soon as Write returned.
		chunk := bytes.Clone(p[n:min(len(p), n+maxWrite)])
		select {
		case c.outgoing <- chunk:
			n += len(chunk)
			if n == len(p) {
				return n, nil
			}
		case <-c.closed:
		case <-c.ended:
		case <-passed:
		}
	}
}

// writeError is why nothing can be written after the link ended.
func (c *conn) writeError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == io.EOF {
		return fail(Lost, string(c.remote), "the other side closed the connection", io.ErrClosedPipe)
	}
	return c.err
}

// Close ends the connection. It does not wait for the other side.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		go c.shutDown()
	})
	return nil
}

// Abort ends the connection as one that was cut off. A proxy server of konnectivity's
// ends the target's connection cleanly nonetheless.
func (c *conn) Abort(error) {
	c.once.Do(func() { close(c.closed) })
	c.link.abort()
}

func (c *conn) shutDown() {
	aborts := time.AfterFunc(linger, c.link.abort)
	defer aborts.Stop()
	<-c.wrote
	c.link.finish()
	c.link.abort()
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	if isClosed(c.closed) {
		return net.ErrClosed
	}
	c.readDeadline.set(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	if isClosed(c.closed) {
		return net.ErrClosed
	}
	c.writeDeadline.set(t)
	return nil
}

// addr is the host:port of one end of a tunnelled connection.
type addr string

func (a addr) Network() string { return "tcp" }
func (a addr) String() string  { return string(a) }
