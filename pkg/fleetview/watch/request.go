package watch

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
)

// reflector lists and watches one member for a stream, as that of client-go does for a store. One
// goroutine runs it, and alone uses the fields from silent on.
type reflector struct {
	*member
	s      *stream
	cancel context.CancelFunc
	// done is closed when run has returned.
	done chan struct{}

	// silent says that the client does not want the objects that the member has now.
	silent bool
	// initialOnce says that the member was asked for initial events. A list
	// says what is different after that.
	initialOnce bool
	// refusalPause is the pause after the next refusal.
	refusalPause time.Duration
}

func newReflector(s *stream, to Member, at string) *reflector {
	return &reflector{member: newMember(&s.o, s.form, to, at), s: s, done: make(chan struct{}), refusalPause: refusedPause}
}

// get sends a request to the member, which has the stream's timeout to begin its answer,
// and returns the answer's body.
func (r *reflector) get(ctx context.Context, more url.Values, accept string) (io.ReadCloser, error) {
	query := url.Values{}
	for _, values := range []url.Values{r.s.o.Query, more} {
		for key, value := range values {
			query[key] = value
		}
	}
	if include := r.s.form.Media().IncludeObject; include != "" {
		query.Set("includeObject", include)
	}
	ctx, cancel := context.WithCancel(ctx)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, (&url.URL{Path: r.s.o.Path, RawQuery: query.Encode()}).String(), nil)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("making a request for %q: %w", r.s.o.Path, err)
	}
	request.Header.Set("Accept", accept)
	late := time.AfterFunc(r.s.o.MemberTimeout, cancel)
	response, err := r.to.RoundTrip(request)
	if !late.Stop() {
		if err == nil {
			response.Body.Close()
		}
		err = fault.ErrTimeout
	}
	if err != nil {
		cancel()
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer cancel()
		defer response.Body.Close()
		if response.StatusCode == http.StatusGone {
			return nil, encoding.ErrExpired
		}
		return nil, fault.Read(r.to.Name(), response)
	}
	return &body{response.Body, cancel}, nil
}

// body is the body of an answer, with what ends its request.
type body struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *body) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}
