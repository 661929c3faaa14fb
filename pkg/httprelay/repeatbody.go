package httprelay

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// maxRepeated bounds the bodies that are kept: nearly all writes of Kubernetes' clients
// are smaller.
const maxRepeated = 32 << 10

// RepeatBody returns r with a short body kept, for net/http to send again. An HTTP/2
// peer that shuts a connection down says which requests it will not look at (GOAWAY);
// sending them to the next connection repeats nothing, but their bodies are gone by
// then. A request whose body is kept begins when all of it is there. Bodies without a
// length are not kept, nor are those whose client waits to be told to go on.
func RepeatBody(r *http.Request) (*http.Request, error) {
	if r.GetBody != nil || r.Body == nil || r.Body == http.NoBody || r.ContentLength <= 0 || r.ContentLength > maxRepeated ||
		len(r.Trailer) > 0 || r.Header.Get("Expect") != "" || IsUpgrade(r.Header) {
		return r, nil
	}
	content := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, content); err != nil {
		_ = r.Body.Close()
		return nil, fmt.Errorf("reading the request's body: %w", err)
	}
	out := *r
	out.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(content), r.Body}
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	return &out, nil
}
