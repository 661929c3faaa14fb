package carrier

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
)

// TestReadAhead has a peer write pieces of many lengths, each of which is waited for: they arrive
// whole and in order, a long one after a long one in one read.
func TestReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		read := readAhead(here)
		for _, step := range []struct {
			size  int
			reads int
		}{{1, 1}, {shortRead - 1, 1}, {shortRead + 1, 2}, {1, 1}, {16 << 10, 2}, {16 << 10, 1}, {MaxFrame - HeaderSize, 1}, {1, 1}, {1, 1}} {
			sent := bytes.Repeat([]byte{byte(step.size)}, step.size)
			go func() { _, _ = there.Write(sent) }()
			var got []byte
			reads := 0
			for ; len(got) < step.size; reads++ {
				buf, n, err := read()
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, buf[HeaderSize:HeaderSize+n]...)
				buffers.Put(buf)
			}
			if reads != step.reads || !bytes.Equal(got, sent) {
				t.Errorf("%d bytes arrive as %d with %d reads, want %d reads", step.size, len(got), reads, step.reads)
			}
		}
		_ = there.Close()
		if _, n, err := read(); n != 0 || err != io.EOF {
			t.Errorf("the end is %d bytes and %v, want %v", n, err, io.EOF)
		}
	})
}

// weigh returns the bytes of the heap that are in use, without those in pools.
func weigh() int {
	runtime.GC() // twice, as a sync.Pool keeps things for one
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestSilentReadersHoldNoFrames weighs what waits for readers that are no TCP connections, as
// those of users with TLS.
func TestSilentReadersHoldNoFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 32
		var far [n]net.Conn
		before := weigh()
		for i := range far {
			here, there := net.Pipe()
			far[i] = there
			read := lazyReader(here)
			go func() {
				for {
					buf, _, err := read()
					if err != nil {
						return
					}
					buffers.Put(buf)
				}
			}()
			if _, err := there.Write([]byte("a request")); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if each := (weigh() - before) / n; each > 2*shortRead {
			t.Errorf("a silent reader is waited for with %d KiB", each>>10)
		}
		for _, conn := range far {
			_ = conn.Close()
		}
	})
}
