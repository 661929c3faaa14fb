package main

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"
)

// The target speaks a protocol of one request a connection: a mode byte, and
// then what the mode says.
const (
	modeEcho   = 'e' // everything comes back
	modeSink   = 's' // 8 bytes of length, then that many bytes; answers one byte when it has them all
	modeSource = 'r' // 8 bytes of length; sends that many bytes
	modeStall  = 'x' // accepts and never reads
	modeFlood  = 'f' // sends until the connection breaks
)

// target answers on a listener until it is closed.
type target struct {
	listener net.Listener
	ended    chan struct{}
}

func newTarget(l net.Listener) *target {
	t := &target{listener: l, ended: make(chan struct{})}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				t.answer(conn)
			}()
		}
	}()
	return t
}

func (t *target) address() string { return t.listener.Addr().String() }

func (t *target) close() {
	_ = t.listener.Close()
	close(t.ended)
}

// buffers keep the target's garbage out of what is measured.
var buffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

var zeros = make([]byte, 256<<10)

func (t *target) answer(conn net.Conn) {
	var head [9]byte
	if _, err := io.ReadFull(conn, head[:1]); err != nil {
		return
	}
	switch head[0] {
	case modeEcho:
		lent := buffers.Get().(*[64 << 10]byte)
		defer buffers.Put(lent)
		buf := lent[:]
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			if _, err := conn.Write(buf[:n]); err != nil {
				return
			}
		}
	case modeSink:
		if _, err := io.ReadFull(conn, head[1:]); err != nil {
			return
		}
		n := int64(binary.BigEndian.Uint64(head[1:]))
		if got, _ := io.CopyBuffer(onlyWriter{}, io.LimitReader(conn, n), make([]byte, 256<<10)); got == n {
			_, _ = conn.Write([]byte{1})
		}
	case modeSource:
		if _, err := io.ReadFull(conn, head[1:]); err != nil {
			return
		}
		send(conn, int64(binary.BigEndian.Uint64(head[1:])))
	case modeStall:
		// Nothing is ever read, for as long as a row may take.
		select {
		case <-t.ended:
		case <-time.After(2 * sampleLimit):
		}
	case modeFlood:
		for {
			if _, err := conn.Write(zeros); err != nil {
				return
			}
		}
	}
}

func send(w io.Writer, n int64) {
	for n > 0 {
		chunk := min(n, int64(len(zeros)))
		if _, err := w.Write(zeros[:chunk]); err != nil {
			return
		}
		n -= chunk
	}
}

// onlyWriter hides io.Discard's ReadFrom, whose 8 KiB buffer would be the
// bottleneck.
type onlyWriter struct{}

func (onlyWriter) Write(p []byte) (int, error) { return len(p), nil }

func header(mode byte, n int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{mode}, uint64(n))
}
