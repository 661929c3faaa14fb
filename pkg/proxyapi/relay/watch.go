package relay

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

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
	// lines says that every event ends with a line.
	lines bool
	last  byte
}

// endOnDrain prepares the answer to a watch. cancel ends the request.
func endOnDrain(draining context.Context, resp *http.Response, cancel context.CancelFunc) {
	resp.Body = &watchBody{
		ReadCloser: resp.Body, request: resp.Request.Context(), draining: draining, last: '\n', stop: context.AfterFunc(draining, cancel),
		lines: resp.Header.Get("Content-Encoding") == "" && strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json"),
	}
}

// Read is canceled by what ends the watch. Between two events that is the end; within one,
// it is an error, as it is when the cluster breaks off.
func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.last = p[n-1]
	}
	if err != nil && b.ended() && (!b.lines || b.last == '\n') {
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
