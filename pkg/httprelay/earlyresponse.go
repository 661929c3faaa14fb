package httprelay

import (
	"context"
	"io"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"
)

type earlyBodyKey struct{}

// earlyBody closes a request body: a Read that is blocked ends.
type earlyBody struct {
	mu   sync.Mutex
	stop func() // nil when the handler has returned
}

func (b *earlyBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop != nil {
		b.stop()
	}
	return nil
}

// release must be the last thing the handler does: its ResponseWriter is not valid
// afterwards.
func (b *earlyBody) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop = nil
}

// HandleEarlyResponses wraps a reverse proxy so that a response which comes before
// the request's body was read (RFC 9110, section 7.5) does not block it. The proxy's
// Rewrite must call RewriteEarlyResponses, and everything that wraps the
// ResponseWriter must be inside.
//
// The HTTP/2 transport stops sending a body as soon as the response is an error, and
// does not tell its peer. A second proxy's transport, which stopped too, waits for
// its reader of the body, which waits for the rest: httputil.ReverseProxy's outgoing
// body cannot be closed. The response never ends. The two functions make the body
// end when the transport closes it.
func HandleEarlyResponses(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		control := http.NewResponseController(w)
		b := &earlyBody{stop: func() { _ = control.SetReadDeadline(time.Unix(1, 0)) }}
		defer b.release()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), earlyBodyKey{}, b)))
	})
}

// RewriteEarlyResponses makes the end of the outgoing request's body that of
// HandleEarlyResponses. It reads the proxy's own request, which may have another body
// by then.
func RewriteEarlyResponses(r *httputil.ProxyRequest) {
	if b, ok := r.In.Context().Value(earlyBodyKey{}).(*earlyBody); ok && r.Out.Body != nil {
		r.Out.Body = struct {
			io.Reader
			io.Closer
		}{r.In.Body, b}
	}
}
