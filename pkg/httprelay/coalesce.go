package httprelay

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Chunk is how much of a body is passed on at a time.
const Chunk = 64 << 10

var chunks = sync.Pool{New: func() any { return new([Chunk]byte) }}

// Buffers is the pool of buffers through which a ReverseProxy copies bodies.
type Buffers struct{}

// Get is part of httputil.BufferPool.
func (Buffers) Get() []byte { return chunks.Get().(*[Chunk]byte)[:] }

// Put is part of httputil.BufferPool.
func (Buffers) Put(p []byte) { chunks.Put((*[Chunk]byte)(p)) }

// documents are media types of answers that are of no use until they are complete,
// unless they are a stream.
var documents = []string{"application/json", "application/vnd.kubernetes.protobuf", "application/cbor"}

// pause is how long a held-back part of a document waits for more. A body that arrives
// bit by bit is no document, whatever its type says: an API behind the kube-apiserver
// may answer a long poll, or one object after the other.
const pause = 50 * time.Millisecond

// Coalesce buffers the answer to a request that is no watch. A short document is read
// to its end and passed on in one piece, with its length. A long one is passed on in
// pieces of a Chunk, instead of the TLS records and HTTP/2 frames of all sizes in which
// it arrived. An error in the middle stays an error. After its first pause an answer is
// passed on as it arrives.
func Coalesce(resp *http.Response) {
	if !isDocument(resp) {
		return
	}
	g := &coalesced{rest: resp.Body, chunk: chunks.Get().(*[Chunk]byte)}
	resp.Body = g
	if resp.ContentLength >= 0 && resp.ContentLength <= Chunk {
		n, err := fill(g.rest, g.chunk[:]) // it said how much to wait for
		g.begin, g.err = g.chunk[:n], err
	} else {
		g.next()
	}
	if g.err == io.EOF {
		resp.ContentLength = int64(len(g.begin))
		resp.Header.Set("Content-Length", strconv.Itoa(len(g.begin)))
	}
}

// fill reads until p is full or there is an error, which stays what it is:
// io.EOF is the body's end, and io.ErrUnexpectedEOF that it was cut off.
func fill(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = r.Read(p[n:])
		n += m
	}
	return n, err
}

func isDocument(resp *http.Response) bool {
	if resp.Body == nil || resp.Body == http.NoBody || resp.StatusCode < 200 || len(resp.Trailer) > 0 ||
		resp.Request != nil && resp.Request.Method == http.MethodHead {
		return false
	}
	kind, parameters, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	for _, document := range documents {
		if strings.EqualFold(strings.TrimSpace(kind), document) {
			return !strings.Contains(strings.ToLower(parameters), "stream")
		}
	}
	return false
}

// coalesced is a body of which the beginning was read.
type coalesced struct {
	rest  io.ReadCloser
	chunk *[Chunk]byte // nil when it was released
	begin []byte       // what of it was not read yet
	piece *piece       // that is still being read; nil if there is none
	held  int          // bytes of piece that begin has, or had
	slow  bool         // it comes bit by bit
	err   error        // of reading on; nil if there is more
}

// piece is a part of a body on its way into memory.
type piece struct {
	into []byte
	done chan struct{}

	mu    sync.Mutex
	n     int
	taken bool // nothing more than the Read under way
	err   error
}

func (p *piece) read(from io.Reader, n int) {
	defer close(p.done)
	var err error
	for more := true; more; {
		var m int
		m, err = from.Read(p.into[n:])
		n += m
		p.mu.Lock()
		p.n, p.err = n, err
		more = n < len(p.into) && err == nil && !p.taken
		p.mu.Unlock()
	}
}

// next reads the next piece: a Chunk, or what comes before a pause.
func (g *coalesced) next() {
	// The first bytes are waited for in any case.
	n, err := g.rest.Read(g.chunk[:])
	if g.err = err; n == Chunk || err != nil {
		g.begin = g.chunk[:n]
		return
	}
	p := &piece{into: g.chunk[:], done: make(chan struct{}), n: n}
	go p.read(g.rest, n)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for last := n; ; timer.Reset(pause) {
		select {
		case <-p.done:
			g.begin, g.err = g.chunk[:p.n], p.err
			return
		case <-timer.C:
		}
		p.mu.Lock()
		now := p.n
		p.taken = now == last
		p.mu.Unlock()
		if now == last {
			g.begin, g.piece, g.held, g.slow = g.chunk[:now], p, now, true
			return
		}
		last = now
	}
}

// Read returns what was read ahead, and then what comes.
func (g *coalesced) Read(p []byte) (int, error) {
	for len(g.begin) == 0 {
		switch {
		case g.piece != nil:
			<-g.piece.done
			g.begin, g.err = g.chunk[g.held:g.piece.n], g.piece.err
			g.piece = nil
		case g.err != nil:
			g.release()
			return 0, g.err
		case g.slow:
			g.release()
			return g.rest.Read(p)
		default:
			g.next()
		}
	}
	n := copy(p, g.begin)
	g.begin = g.begin[n:]
	if len(g.begin) > 0 || g.piece != nil || g.err == nil {
		return n, nil
	}
	g.release()
	return n, g.err
}

func (g *coalesced) release() {
	if g.chunk != nil {
		chunks.Put(g.chunk)
		g.chunk, g.begin = nil, nil
	}
}

func (g *coalesced) Close() error { return g.rest.Close() }
