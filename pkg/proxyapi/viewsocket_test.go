package proxyapi

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/session"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/view"
	"open-cluster-management.io/cluster-proxy/test/testkit/hubapi"
)

// TestViewWatchByWebSocket has a user who may watch, and nothing else. Each event is one message, and
// each end has a close message of its own. A refusal is answered by HTTP.
func TestViewWatchByWebSocket(t *testing.T) {
	const one, two = "{\"a\":\"é\"}\n", "{\"b\":2}\n"
	const pods = "/@all/api/v1/pods"
	for name, tc := range map[string]struct {
		path     string
		protocol string
		// code is 101 if it is 0. said is in what the answer says.
		code int
		said string
		// end ends the watch, which ends with the error want.
		end  func(w *world, conn *websocket.Conn)
		want string
	}{
		"its time is up":     {path: pods + "?watch=1&timeoutSeconds=1", said: "[] [299", want: "close 1000 (normal)"},
		"by the hub's URL":   {path: scope.ViewsPath + "all/proxy/api/v1/pods?watch=true&timeoutSeconds=1", want: "close 1000 (normal)"},
		"a protocol":         {path: pods + "?watch=1&timeoutSeconds=1", protocol: "base64.binary.k8s.io, other", said: "[base64.binary.k8s.io]", want: "close 1000 (normal)"},
		"the process drains": {path: pods + "?watch=1", end: func(w *world, _ *websocket.Conn) { w.stop() }, want: "close 1001 (going away): " + session.WatchAgain},
		"a right is lost":    {path: pods + "?watch=1", end: func(w *world, _ *websocket.Conn) { w.api.Set(func(h *hubapi.Hub) { h.Rules = nil }) }, want: "close 1008 (policy violation): your access was revoked: you have no right on the hub to this cluster or view any more"},
		"the client leaves":  {path: pods + "?watch=1", end: leaveSocket, want: "close 1000 (normal)"},
		"a refusal":          {path: pods + "?watch=1&refuse=410", code: http.StatusGone, said: "too old"},
	} {
		t.Run(name, func(t *testing.T) {
			w := startWith(t, func(s *Server) {
				s.newFleetHandler = func(draining <-chan struct{}) view.FleetHandler {
					return fleetFunc(func(w http.ResponseWriter, r *http.Request, _ fleet.View) {
						if code, err := strconv.Atoi(r.URL.Query().Get("refuse")); err == nil {
							http.Error(w, "too old", code)
							return
						}
						w.Header().Set("Content-Type", fleet.JSONType)
						w.Header().Set("Warning", "299 - x")
						w.WriteHeader(http.StatusOK)
						if err := http.NewResponseController(w).Flush(); err != nil {
							t.Error(err)
						}
						_, _ = io.WriteString(w, one+two[:3])
						_, _ = io.WriteString(w, two[3:])
						if r.URL.Query().Get("timeoutSeconds") != "" {
							return
						}
						select {
						case <-draining:
						case <-r.Context().Done():
						}
					})
				}
			}, func(o *Options) { o.RevalidateStreams = 200 * time.Millisecond })
			w.addView("all", "cluster1", "cluster2")
			w.api.User("viewer", "vera")
			w.api.Allow("vera get fleetviews all", "vera watch clusters/proxy *", "vera list clusters/proxy *")
			conn, code, said, err := w.watchSocket(tc.path, "viewer", tc.protocol)
			if want := cmp.Or(tc.code, http.StatusSwitchingProtocols); code != want || !strings.Contains(said, tc.said) {
				t.Fatalf("answered %d %q, %v; want %d %q", code, said, err, want, tc.said)
			}
			if conn == nil {
				return
			}
			defer conn.Close()
			for _, want := range []string{one, two} {
				if kind, got, err := conn.ReadMessage(); kind != websocket.TextMessage || string(got) != want {
					t.Errorf("a message of kind %d is %q, %v; want text %q", kind, got, err, want)
				}
			}
			if tc.end != nil {
				tc.end(w, conn)
			}
			if _, got, err := conn.ReadMessage(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the watch ends with %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}

func leaveSocket(w *world, conn *websocket.Conn) {
	if err := conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")); err != nil {
		w.t.Error(err)
	}
}

// watchSocket opens a watch by WebSocket. It returns the answer's code, and its body, or in place
// of that its protocol and warnings.
func (w *world) watchSocket(path, token, protocol string) (conn *websocket.Conn, code int, said string, err error) {
	w.t.Helper()
	header := http.Header{"Authorization": {"Bearer " + token}, "Origin": {"https://x"}}
	if protocol != "" {
		header.Set("Sec-Websocket-Protocol", protocol)
	}
	dialer := &websocket.Dialer{TLSClientConfig: w.client("http/1.1").Transport.(*http.Transport).TLSClientConfig.Clone()}
	conn, resp, err := dialer.DialContext(w.t.Context(), strings.Replace(w.url, "https:", "wss:", 1)+path, header)
	switch {
	case err == nil:
		return conn, resp.StatusCode, fmt.Sprint(resp.Header["Sec-Websocket-Protocol"], resp.Header["Warning"]), nil
	case resp != nil:
		body, _ := io.ReadAll(resp.Body)
		return nil, resp.StatusCode, string(body), err
	}
	return nil, 0, "", err
}

// watchViewSocket is a watch as a session.
func watchViewSocket(w *world, out *seen) error {
	conn, _, said, err := w.watchSocket("/@all/api/v1/pods?watch=1", "jane", "")
	if err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	defer conn.Close()
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return err
		}
		_, _ = out.Write(message)
	}
}
