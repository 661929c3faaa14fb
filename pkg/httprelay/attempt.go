package httprelay

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"golang.org/x/net/http2"
)

// attempts is how often a request is sent that a peer says it did not look at.
const attempts = 7

// unprocessed are the texts of net/http's errors for requests that a peer has not looked at: those that a
// GOAWAY names, and those for which it was too late. net/http has neither a type nor a value for them. With a
// text that is not here a request counts as looked at, and a write is not sent again.
var unprocessed = []string{
	"http2: Transport received Server's graceful shutdown GOAWAY",
	"http2: client conn not usable",
}

// mayRepeat reports whether an error says that the peer has not looked at a request.
func mayRepeat(err error) bool {
	var stream http2.StreamError
	if errors.As(err, &stream) {
		return stream.Code == http2.ErrCodeRefusedStream
	}
	return slices.Contains(unprocessed, err.Error())
}

// attempt sends a request, and on another connection what a peer has not looked at.
func (s *Shared) attempt(r *http.Request, p *pick) (*http.Response, error) {
	for n := 1; ; n++ {
		c, err := s.connFor(r.Context(), p)
		if err != nil {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, err
		}
		resp, err := c.RoundTrip(r)
		if err == nil || n == attempts || !mayRepeat(err) || r.Context().Err() != nil {
			return resp, err
		}
		p.release()
		if r = rewound(r); r == nil {
			return nil, err
		}
		if n > 1 && !lasts(r.Context(), time.Second<<(n-2)) {
			return nil, context.Cause(r.Context())
		}
	}
}

// rewound is a request with its body from the beginning, or nil if that is gone.
func rewound(r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	if r.GetBody == nil {
		return nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil
	}
	again := *r
	again.Body = body
	return &again
}

// lasts reports whether ctx lasted as long.
func lasts(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
