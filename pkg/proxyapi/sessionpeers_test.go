package proxyapi

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/session"
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
	other.server.sessions.Replica = "other"
	const exec = "GET /cluster1/api/v1/namespaces/ns/pods/pod/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAuthorization: Bearer jane\r\n\r\n"
	conn, answer := other.dialWith(exec)
	defer conn.Close()
	one := w.aSession()
	if one.Status.Replica != "other" || one.Status.User != "jane" || string(one.UID) != one.Name {
		t.Errorf("got %+v, want jane's session at the other replica", one)
	}
	if resp, body := w.ask(http.MethodGet, scope.GroupPath+"/sessions/"+one.Name, "ada"); resp.StatusCode != http.StatusOK {
		t.Errorf("get: %d %s", resp.StatusCode, body)
	}
	if resp, body := w.ask(http.MethodDelete, scope.GroupPath+"/sessions/"+one.Name, "ada"); resp.StatusCode != http.StatusOK {
		t.Errorf("ending it: %d %s", resp.StatusCode, body)
	}
	farewell, _ := io.ReadAll(answer) // the connection ends, one way or the other
	if !strings.Contains(string(farewell), session.ErrEnded.Error()) {
		t.Errorf("the user has read %q, want why", farewell)
	}
	if items, header := w.sessions(); len(items) > 0 || len(header["Warning"]) > 0 {
		t.Errorf("%v are left, warnings %q", items, header["Warning"])
	}
	// A replica that is lost may have sessions. It is greeted again in a moment, which may be now.
	eventually(t, func() bool {
		w.server.peers.Mu.Lock()
		for _, known := range w.server.peers.Known {
			if known.ID != "" {
				known.Lost = time.Now()
			}
		}
		w.server.peers.Mu.Unlock()
		_, _, missing := w.server.peers.AskSessions(t.Context())
		return len(missing) > 0
	})
}
