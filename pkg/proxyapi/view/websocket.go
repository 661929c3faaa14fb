package view

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/session"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// closeTimeout is how long a client may take to read why its watch ends.
const closeTimeout = 2 * time.Second

// webSocket is the answer to a watch by WebSocket. As kube-apiserver's it has a message of text for
// each event (k8s.io/apiserver, WatchServer.HandleWS). An answer without events is one by HTTP.
type webSocket struct {
	http.ResponseWriter
	request *http.Request
	// conn is nil until the events begin, and refused is why they do not.
	conn    *websocket.Conn
	refused error
	// gone ends the request of a client that is gone, which reading waits for.
	gone    context.CancelFunc
	reading sync.WaitGroup
	// part is the beginning of an event.
	part []byte
}

// watch prepares the answer to a watch, which is a session. leave must be called when it has ended.
func (f *Fleet) watch(w http.ResponseWriter, r *http.Request, rs *scope.Scope) (_ http.ResponseWriter, _ *http.Request, leave func()) {
	if rs.Leaves || !wsstream.IsWebSocketRequest(r) {
		watched, ctx, leave := f.Sessions.Watch(r.Context(), w, rs)
		return watched, r.WithContext(ctx), leave
	}
	ctx, gone := context.WithCancel(r.Context())
	socket := &webSocket{ResponseWriter: w, request: r, gone: gone}
	watched, ctx, remove := f.Sessions.Watch(ctx, socket, rs)
	return watched, r.WithContext(ctx), func() {
		remove()
		socket.end(ctx, f.Relay.Draining)
		gone()
	}
}

// Unwrap is for http.ResponseController.
func (s *webSocket) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *webSocket) WriteHeader(code int) {
	if code != http.StatusOK || s.Header().Get("Content-Type") != runtime.ContentTypeJSON {
		s.ResponseWriter.WriteHeader(code)
		return
	}
	header := s.Header().Clone()
	header.Del("Content-Type")
	r := s.request.Clone(s.request.Context())
	agentclient.DeleteWebSocketTokens(r.Header)
	if protocols := websocket.Subprotocols(r); len(protocols) > 0 {
		header.Set("Sec-Websocket-Protocol", protocols[0]) // browsers give up without it
	}
	upgrader := websocket.Upgrader{
		CheckOrigin: func(*http.Request) bool { return true }, // a filter has
		Error: func(w http.ResponseWriter, _ *http.Request, code int, reason error) {
			status.Write(w, status.New(code, reason.Error()).ErrStatus)
		},
	}
	if s.conn, s.refused = upgrader.Upgrade(s.ResponseWriter, r, header); s.refused == nil {
		s.reading.Go(s.read)
	}
}

// read answers pings, and throws away what else the client sends.
func (s *webSocket) read() {
	defer s.gone()
	for {
		if _, _, err := s.conn.NextReader(); err != nil {
			return
		}
	}
}

// Write sends the events that are whole, each of which is a line.
func (s *webSocket) Write(p []byte) (int, error) {
	switch {
	case s.refused != nil:
		return 0, s.refused
	case s.conn == nil:
		return s.ResponseWriter.Write(p)
	}
	for rest := p; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			s.part = append(s.part, rest...)
			break
		}
		event := rest[:end]
		if len(s.part) > 0 {
			event, s.part = append(s.part, event...), nil
		}
		if err := s.conn.WriteMessage(websocket.TextMessage, event); err != nil {
			return 0, err
		}
		rest = rest[end:]
	}
	return len(p), nil
}

// FlushError is for http.ResponseController. Messages do not wait.
func (s *webSocket) FlushError() error {
	if s.conn == nil && s.refused == nil {
		return http.NewResponseController(s.ResponseWriter).Flush()
	}
	return s.refused
}

// SetWriteDeadline is for http.ResponseController. One in the past cuts off a client that does not
// read, during Write too.
func (s *webSocket) SetWriteDeadline(t time.Time) error {
	switch {
	case s.conn == nil:
		return http.NewResponseController(s.ResponseWriter).SetWriteDeadline(t)
	case t.After(time.Now()):
		return s.conn.SetWriteDeadline(t)
	}
	return s.conn.NetConn().Close()
}

// end tells the client why the watch ends, if it has begun. ctx is the watch's.
func (s *webSocket) end(ctx, draining context.Context) {
	if s.conn == nil {
		return
	}
	code, reason := websocket.CloseNormalClosure, ""
	switch cause := context.Cause(ctx); {
	case cause != nil && !errors.Is(cause, context.Canceled): // an administrator, or lost rights
		code, reason = websocket.ClosePolicyViolation, cause.Error()
	case draining.Err() != nil:
		code, reason = websocket.CloseGoingAway, session.WatchAgain
	}
	deadline := time.Now().Add(closeTimeout)
	if s.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), deadline) == nil {
		_ = s.conn.SetReadDeadline(deadline) // until then the client answers
		s.reading.Wait()
	}
	_ = s.conn.Close() // it may be closed already
	s.reading.Wait()
}
