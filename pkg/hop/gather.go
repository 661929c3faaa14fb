package hop

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Chunk is how much of a body is passed on at a time.
const Chunk = 64 << 10

var chunks = sync.Pool{New: func() any { return new([Chunk]byte) }}

// Buffers lend a ReverseProxy the memory through which bodies are copied.
type Buffers struct{}

// Get is part of httputil.BufferPool.
func (Buffers) Get() []byte { return chunks.Get().(*[Chunk]byte)[:] }

// Put is part of httputil.BufferPool.
func (Buffers) Put(p []byte) { chunks.Put((*[Chunk]byte)(p)) }

// documents are media types of answers that mean nothing until they are
// complete, if they are no stream of them.
var documents = []string{"application/json", "application/vnd.kubernetes.protobuf", "application/cbor"}

// Gather is for the answer to a request that is no watch: a short document is
// read to its end, so that it goes on in one piece and with its length; a long
// one goes on in pieces of a Chunk, and not as it came, which is in TLS records
// and HTTP/2 frames of all sizes. An error in the middle stays one.
func Gather(resp *http.Response) {
	if !isDocument(resp) {
		return
	}
	chunk := chunks.Get().(*[Chunk]byte)
	n, err := fill(resp.Body, chunk[:])
	if err == io.EOF {
		resp.ContentLength = int64(n)
		resp.Header.Set("Content-Length", strconv.Itoa(n))
	}
	resp.Body = &gathered{chunk: chunk, begin: chunk[:n], rest: resp.Body, err: err}
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

// gathered is a body of which the beginning was read.
type gathered struct {
	chunk *[Chunk]byte // nil when it was given back
	begin []byte       // what of it was not read yet
	rest  io.ReadCloser
	err   error // of reading on; nil if there is more
}

// Read fills p, unless the body ends.
func (g *gathered) Read(p []byte) (n int, err error) {
	n = copy(p, g.begin)
	g.begin = g.begin[n:]
	if len(g.begin) > 0 {
		return n, nil
	}
	if g.chunk != nil {
		chunks.Put(g.chunk)
		g.chunk, g.begin = nil, nil
	}
	if g.err == nil {
		var m int
		m, g.err = fill(g.rest, p[n:])
		n += m
	}
	return n, g.err
}

func (g *gathered) Close() error { return g.rest.Close() }
