package httprelay

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"testing"
	"time"
)

// TestAnswerMeetsGivingUp has an answer begin while its connection is being given
// up as silent. The request must be Broken, so that it is sent again: what is read
// of that answer ends in its middle, and the proxy API would end the caller's
// connection for it.
func TestAnswerMeetsGivingUp(t *testing.T) {
	for range 20 {
		ctx, cancel := context.WithCancelCause(t.Context())
		began := make(chan struct{})
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { close(began) }})
		s := &Shared{Spread: 1, Streams: 1, IdleTimeout: time.Hour}
		given := &pick{shared: s, giveUp: cancel}
		p := &h2Peer{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			given.mu.Lock() // as check does
			_, _ = w.Write([]byte("the beginning"))
			_ = http.NewResponseController(w).Flush()
			<-began
			for range 100 {
				runtime.Gosched() // RoundTrip returns meanwhile, most likely
			}
			given.giveUp(errSilent)
			given.mu.Unlock()
			<-r.Context().Done()
		})}
		s.Dial = p.dial
		err := exchange(func(r *http.Request) (*http.Response, error) { return s.send(r, given) }, request(t, http.MethodGet, "/").WithContext(ctx))
		if !errors.As(err, new(*Broken)) {
			t.Errorf("the request ends with %v, want that its connection broke", err)
		}
		p.close()
	}
}
