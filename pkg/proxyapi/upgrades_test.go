package proxyapi

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/relay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// TestAnswersToUpgrades has a cluster answer to a wish for another protocol in
// every way but the right one. The client's connection must not lead to the
// cluster afterwards (CVE-2018-1002105), nor the answer elsewhere (CVE-2020-8559,
// CVE-2022-3172): what comes next is a request of its own, and nobody's.
func TestAnswersToUpgrades(t *testing.T) {
	w := start(t)
	w.api.User("hub-token", "jane")
	w.api.Allow("jane * clusters/proxy *", "jane create clusters/stream *")
	var answer string
	next := make(chan *http.Request, 10)
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			next <- r
			return
		}
		conn, buffered, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 "+answer+"\r\nConnection: close\r\n\r\n")
		// Nothing of the client's may come through.
		if rest, err := io.ReadAll(buffered); len(rest) > 0 {
			t.Errorf("%q: %q came on the cluster's connection, %v", answer, rest, err)
		}
	}), "cluster1")
	config := pkitest.Load(t, pki.Files{CA: w.dir + "/proxy-api-ca.crt"}).ClientConfig("127.0.0.1")
	const evil = "\r\nLocation: https://evil.example/\r\nContent-Length: 0"
	for text, want := range map[string]int{
		"200 OK\r\nContent-Length: 0": 200,
		"200 OK\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\nContent-Length: 0": 200, "403 Forbidden\r\nContent-Length: 0": 403, "500 Oops\r\nContent-Length: 0": 500,
		"301 Moved" + evil: 502, "302 Found" + evil: 502, "303 See Other" + evil: 502, "307 Temporary" + evil: 502, "308 Permanent" + evil: 502,
		"302 Found\r\nLocation: /cluster2/x\r\nContent-Length: 0": 302,
		"101 Switching": 502,
		"101 Switching\r\nConnection: Upgrade\r\nUpgrade: h2c": 502,
		"101 Switching" + evil:                                 502,
	} {
		answer = text
		conn, err := tls.Dial("tcp", strings.TrimPrefix(w.url, "https://"), config)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "GET /cluster1/api/v1/namespaces/a/pods/b/exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer hub-token\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		reader := bufio.NewReader(conn)
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Errorf("reading the answer after %q: %v", text, err)
			continue
		}
		location := resp.Header.Get("Location")
		if resp.StatusCode != want || location != "" && !strings.HasPrefix(location, "/cluster1/") {
			t.Errorf("%q: %d, Location %q; want %d", text, resp.StatusCode, location, want)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		fmt.Fprint(conn, "GET /cluster1/api/v1/secrets HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if resp, err := http.ReadResponse(reader, nil); err == nil {
			resp.Body.Close()
			if r := <-next; r.Header.Get("X-Remote-User") != "" || r.Header.Get("Authorization") != "" {
				t.Errorf("%q: the next request is from %q, want nobody's", text, r.Header)
			}
		}
		conn.Close()
	}
}

// TestUnaskedAnswers has a cluster change the protocol of an ordinary request,
// which must not make the client's connection the cluster's, or answer with what
// is no status.
func TestUnaskedAnswers(t *testing.T) {
	l := &relay.Relay{Latencies: relay.NewLatencies()}
	for _, tc := range []struct {
		code          int
		upgrade, with string
		refused       bool
	}{
		{101, "", "", true}, {101, "", "websocket", true}, {101, "websocket", "websocket", false}, {101, "websocket", "", true}, {101, "websocket", "h2c", true},
		{0, "", "", true}, {99, "", "", true}, {99, "websocket", "", true}, {100, "", "", true}, {200, "", "", false}, {999, "", "", false}, {1000, "", "", true},
	} {
		headerOf := func(protocol string) http.Header {
			if protocol == "" {
				return http.Header{}
			}
			return http.Header{"Connection": {"Upgrade"}, "Upgrade": {protocol}}
		}
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
		r.Header = headerOf(tc.upgrade)
		c := &scope.Scope{Target: route.Target{Cluster: "cluster1"}, Inner: &request.RequestInfo{Verb: "get"}, Long: true}
		r = r.WithContext(context.WithValue(r.Context(), scope.Key{}, c))
		err := l.ModifyResponse(&http.Response{StatusCode: tc.code, Header: headerOf(tc.with), Body: http.NoBody, Request: r})
		if (err != nil) != tc.refused {
			t.Errorf("%d with %q to %q: %v, want it refused: %t", tc.code, tc.with, tc.upgrade, err, tc.refused)
		}
	}
}

// TestWebSocketWatchIsARead has a user who may read, and nothing else, ask for upgrades. A watch
// is one that needs no right to streams, and is no session; exec stays one.
func TestWebSocketWatchIsARead(t *testing.T) {
	w := start(t)
	w.api.User("viewer", "vera")
	w.api.User("ada", "ada")
	w.api.Allow("vera get clusters/proxy *", "vera list clusters/proxy *", "vera watch clusters/proxy *", "ada list sessions *")
	gone := make(chan struct{}, 10)
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nevent\n")
		_, _ = io.Copy(io.Discard, conn)
		gone <- struct{}{}
	}), "cluster1")
	for _, tc := range []struct {
		path string
		want int
	}{
		{"/api/v1/namespaces/default/pods?watch=1", 101}, {"/apis/apps/v1/deployments?watch=true&resourceVersion=1", 101},
		{"/api/v1/namespaces/default/pods", 403}, {"/api/v1/namespaces/default/pods/p/exec?command=id&watch=1", 403},
		{"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm/console?watch=1", 403},
	} {
		r, err := http.NewRequest(http.MethodGet, w.url+"/cluster1"+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Authorization": {"Bearer viewer"}, "Origin": {"https://x"}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
		resp, err := w.client("http/1.1").Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != tc.want {
			body, _ := io.ReadAll(resp.Body)
			t.Errorf("%s: %d %s, want %d", tc.path, resp.StatusCode, body, tc.want)
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "event\n" {
				t.Errorf("%s: the watch says %q, %v", tc.path, line, err)
			}
			if sessions, _ := w.sessions(); len(sessions) > 0 {
				t.Errorf("%s: there are sessions %+v, want none", tc.path, sessions)
			}
			resp.Body.Close()
			<-gone // a watch whose client is gone ends
		}
		resp.Body.Close()
	}
}

// TestOffersOfH2C sends what Java's HttpClient sends first on a connection: the offer is ignored.
func TestOffersOfH2C(t *testing.T) {
	w := start(t)
	w.api.User("viewer", "vera")
	w.api.Allow("vera list clusters/proxy *")
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(rw, r.Header["Upgrade"], r.Header["Http2-Settings"])
	}), "cluster1")
	for offer, want := range map[string]int{"h2c": 200, "H2C": 200, "h2c, websocket": 403, "h2": 403} {
		resp, body := w.ask(http.MethodGet, "/cluster1/api/v1/pods", "viewer", "Connection", "Upgrade, HTTP2-Settings", "Upgrade", offer, "Http2-Settings", "AAEAAEAA")
		if resp.StatusCode != want || want == http.StatusOK && body != "[] []" {
			t.Errorf("Upgrade: %s: %d %s, want %d, and no offer at the agent", offer, resp.StatusCode, body, want)
		}
	}
}
