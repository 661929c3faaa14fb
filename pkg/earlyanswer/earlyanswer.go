// Package earlyanswer keeps two reverse proxies in a row from waiting for each
// other when a server answers before it has read a request's body.
//
// The HTTP/2 transport stops sending a body as soon as the answer is an error,
// without saying so to its peer. The second proxy's transport, which stopped too,
// then waits for its own reader of the body, who waits for the rest that never
// comes: httputil.ReverseProxy gives it a body that cannot be closed. The answer
// has no end, and the client waits for it for ever.
//
// Handler and Rewrite together make the body end when the transport closes it.
package earlyanswer

import (
	"context"
	"io"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"
)

type bodyKey struct{}

// body is a request's body of which Close ends a Read that waits.
type body struct {
	io.Reader

	mu   sync.Mutex
	stop func() // nil when the handler is done
}

func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop != nil {
		b.stop()
	}
	return nil
}

// release is the last that the handler does: its ResponseWriter ends with it.
func (b *body) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop = nil
}

// Handler must come before everything that wraps the ResponseWriter.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		control := http.NewResponseController(w)
		b := &body{Reader: r.Body, stop: func() { _ = control.SetReadDeadline(time.Unix(1, 0)) }}
		defer b.release()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), bodyKey{}, b)))
	})
}

// Rewrite gives the outgoing request the body that Handler made; it is a part of
// ReverseProxy.Rewrite.
func Rewrite(r *httputil.ProxyRequest) {
	if b, ok := r.In.Context().Value(bodyKey{}).(*body); ok && r.Out.Body != nil {
		r.Out.Body = b
	}
}
