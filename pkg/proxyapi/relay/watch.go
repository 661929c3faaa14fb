package relay

import (
	"context"
	"errors"
	"io"
	"net/http"

	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/session"
)

// watchBody is the body of a watch. When the proxy API drains it ends as a watch
// ends whose time is up, and clients go on elsewhere. So does a watch of a view whose
// session is ended, or whose view has changed.
type watchBody struct {
	io.ReadCloser
	// request is the request's context.
	request  context.Context
	draining context.Context
	stop     func() bool
	events   session.Events
}

// endOnDrain prepares the answer to a watch. cancel ends the request.
func endOnDrain(draining context.Context, resp *http.Response, cancel context.CancelFunc) {
	resp.Body = &watchBody{
		ReadCloser: resp.Body, request: resp.Request.Context(), draining: draining, stop: context.AfterFunc(draining, cancel), events: session.EventsOf(resp.Header),
	}
}

// Read is canceled by what ends the watch. Between two events that is the end. Within one, and
// where that is not known, it is an error, as it is when the cluster breaks off.
func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.events.Follow(p[:n])
	if err != nil && b.ended() && b.events.Whole() {
		err = io.EOF
	}
	return n, err
}

func (b *watchBody) ended() bool {
	cause := context.Cause(b.request)
	return b.draining.Err() != nil || errors.Is(cause, session.ErrEnded) || errors.Is(cause, ErrViewChanged)
}

func (b *watchBody) Close() error {
	b.stop()
	return b.ReadCloser.Close()
}

// ErrViewChanged ends a watch of a view that is defined otherwise since.
var ErrViewChanged = errors.New("the FleetView has changed")
