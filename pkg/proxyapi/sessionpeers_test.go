package proxyapi

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch"
	"open-cluster-management.io/cluster-proxy/pkg/frames"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
)

// TestSessionsOfReplicas has two replicas. Each lists the sessions of both, and ends those
// of the other. When one is gone, the list says so.
func TestSessionsOfReplicas(t *testing.T) {
	var at string
	w := sessionWorld(t, func(t *testing.T, prepare func(*Server)) *world {
		w, address := startWithPeers(t)
		at = address
		return w
	})
	w.agent("cluster1", http.HandlerFunc(endless), "cluster1")
	port, err := ports.Next()
	if err != nil {
		t.Fatal(err)
	}
	other := w.another(t, func(o *Options) {
		o.PeerPort, o.Peers = port, []string{at, net.JoinHostPort("127.0.0.1", fmt.Sprint(port))}
	})
	other.server.sessions.replica = "other"
	const exec = "GET /cluster1/api/v1/namespaces/ns/pods/pod/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAuthorization: Bearer jane\r\n\r\n"
	conn, answer := other.dialWith(exec)
	defer conn.Close()
	one := w.aSession()
	if one.Status.Replica != "other" || one.Status.User != "jane" || string(one.UID) != one.Name {
		t.Errorf("got %+v, want jane's session at the other replica", one)
	}
	if resp, body := w.ask(http.MethodGet, groupPath+"/sessions/"+one.Name, "ada"); resp.StatusCode != http.StatusOK {
		t.Errorf("get: %d %s", resp.StatusCode, body)
	}
	if resp, body := w.ask(http.MethodDelete, groupPath+"/sessions/"+one.Name, "ada"); resp.StatusCode != http.StatusOK {
		t.Errorf("ending it: %d %s", resp.StatusCode, body)
	}
	farewell, _ := io.ReadAll(answer) // the connection ends, one way or the other
	if !strings.Contains(string(farewell), errEnded.Error()) {
		t.Errorf("the user has read %q, want why", farewell)
	}
	if items, header := w.sessions(); len(items) > 0 || len(header["Warning"]) > 0 {
		t.Errorf("%v are left, warnings %q", items, header["Warning"])
	}
	// A replica that is lost may have sessions. It is greeted again in a moment, which may be now.
	eventually(t, func() bool {
		w.server.peers.mu.Lock()
		for _, known := range w.server.peers.known {
			if known.id != "" {
				known.lost = time.Now()
			}
		}
		w.server.peers.mu.Unlock()
		_, _, missing := w.server.peers.askSessions(t.Context())
		return len(missing) > 0
	})
}

// TestEvilSessionPeers has a peer that lies, hangs, or answers without end.
func TestEvilSessionPeers(t *testing.T) {
	const name = "0123456789abcdef0123456789abcdef"
	for what, tc := range map[string]struct {
		answer  func(w http.ResponseWriter, r *http.Request)
		want    int
		missing string
	}{
		"an old one": {answer: http.NotFound, missing: "without sessions"},
		"hangs":      {missing: "deadline"},
		"fails":      {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, missing: "500"},
		"nonsense":   {answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{") }, missing: "no list"},
		"a foreign name": {answer: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"sessions":[{"metadata":{"name":"../x"}}]}`)
		}, missing: "no list"},
		"too many": {answer: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"sessions":[`+strings.Repeat("{},", 1<<12)+`{}]}`)
		}, missing: "more than 2000"},
		"too long": {answer: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"sessions":[],"x":"`+strings.Repeat("x", watch.MaxMessage)+`"}`)
		}, missing: "more than"},
		"more": {answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"sessions":[],"more":7}`) }, missing: "7 sessions more"},
		"escapes": {answer: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"sessions":[{"metadata":{"name":"`+name+`","labels":{"a":"b"}},"status":{"user":"\u001b[2J"}}]}`)
		}, want: 1},
	} {
		t.Run(what, func(t *testing.T) {
			inNetwork(t, func(t *testing.T, n *network) {
				one := n.start(t, 1)
				two := n.start(t, 2, one)
				synctest.Wait()
				n.freeze(two.address, tc.answer == nil)
				greetings := two.routes()
				n.set(two.address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasPrefix(r.URL.Path, sessionsPath) {
						tc.answer(w, r)
						return
					}
					greetings.ServeHTTP(w, r)
				}))
				items, _, missing := one.askSessions(t.Context())
				if len(items) != tc.want || !strings.Contains(strings.Join(missing, ";"), tc.missing) || (tc.missing == "") != (len(missing) == 0) {
					t.Errorf("got %d sessions, missing %q; want %d, %q", len(items), missing, tc.want, tc.missing)
				}
				for _, s := range items {
					if strings.Contains(s.Status.User, "\x1b") || s.Labels != nil {
						t.Errorf("got %+v, want what is safe to print", s)
					}
				}
			})
		})
	}
}

// BenchmarkSessions has what a stream costs that is listed, and one that is not.
func BenchmarkSessions(b *testing.B) {
	scope := &requestScope{target: route.Target{Cluster: "cluster1", Query: "?container=main"}, inner: &request.RequestInfo{Namespace: "ns", Name: "pod", Resource: "pods", Subresource: "exec"}}
	block := make([]byte, 32<<10)
	for name, listed := range map[string]bool{"listed": true, "none": false} {
		b.Run("begin/"+name, func(b *testing.B) {
			s := newSessions(newMetrics(prometheus.NewRegistry()))
			for b.Loop() {
				if listed {
					s.join(s.describe(scope, kindExec))()
				}
			}
		})
		b.Run("write/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(block)))
			var to net.Conn = discardConn{}
			if listed {
				to = &sessionConn{Conn: to, session: &session{}, follower: frames.New(http.Header{"Upgrade": {"SPDY/3.1"}}, true)}
			}
			frame := append([]byte{0, 0, 0, 1, 0, 0, 0x7f, 0xf8}, block[8:]...)
			for b.Loop() {
				if _, err := to.Write(frame); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type discardConn struct{ net.Conn }

func (discardConn) Write(p []byte) (int, error) { return len(p), nil }
