package proxyapi

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

func get(t testing.TB, client *http.Client, url string, header http.Header) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	// A token of the managed cluster's, if nothing else is said.
	req.Header.Set("Authorization", "Bearer managed")
	if header != nil {
		req.Header = header
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestRequestsArriveUnchanged(t *testing.T) {
	w := start(t)
	seen := make(chan *http.Request, 1)
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		seen <- r
		rw.Header().Set("Warning", `299 - "old"`)
		rw.Header().Set("Set-Cookie", "a=b")
	}), "cluster1")
	resp, _ := get(t, w.client(), w.url+"/cluster1/api/v1//x%2Fy%20z?a=%2F/..&b;c=1", http.Header{
		"Authorization": {"Bearer secret"}, "Impersonate-User": {"jane"}, "X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"},
		"X-Forwarded-For": {"10.1.1.1"}, "X-Forwarded-Host": {"evil"}, "Forwarded": {"for=x"}, "Cluster-Proxy-Proto": {"http"}, "Accept": {"a", "b"},
	})
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Warning") != `299 - "old"` || resp.Header.Get("Set-Cookie") != "a=b; Path=/cluster1/" {
		t.Errorf("answered %d %v, want 200 with the agent's Warning and Set-Cookie", resp.StatusCode, resp.Header)
	}
	r := <-seen
	if want := "/api/v1//x%2Fy%20z?a=%2F/..&b;c=1"; r.RequestURI != want {
		t.Errorf("request line %q, want %q", r.RequestURI, want)
	}
	if r.ProtoMajor != 2 {
		t.Errorf("protocol %s, want HTTP/2", r.Proto)
	}
	for name, want := range map[string]string{
		"Authorization": "[Bearer secret]", "Impersonate-User": "[jane]", "X-Remote-User": "[]", "X-Remote-Group": "[]", "Accept": "[a b]",
		"X-Forwarded-For": "[127.0.0.1]", "X-Forwarded-Host": "[]", "Forwarded": "[]", "Cluster-Proxy-Proto": "[]",
	} {
		if got := fmt.Sprint(r.Header[name]); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestRequestsShareConnections(t *testing.T) {
	w := start(t)
	a := w.agent("cluster1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "cluster1")
	client := w.client()
	ask := func(method string, header http.Header) {
		req, err := http.NewRequest(method, w.url+"/cluster1/version", nil)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header = header
		resp, err := client.Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("answered %v, %v; want 200", resp, err)
			return
		}
		resp.Body.Close()
	}
	for _, method := range []string{http.MethodDelete, http.MethodGet} {
		most := map[string]int{http.MethodDelete: agentclient.SharedConns, http.MethodGet: agentclient.SharedConns + agentclient.ReadConns}[method]
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { ask(method, http.Header{"Authorization": {"Bearer secret"}}) })
		}
		wg.Wait()
		for range 50 {
			ask(method, http.Header{"Authorization": {"Bearer secret"}})
		}
		if dials, handshakes := int(w.hub.Dials(w.handlerAddress("cluster1"))), int(a.handshakes.Load()); dials > most || handshakes > most {
			t.Errorf("%d dials and %d handshakes for 100 requests %s, want %d at most", dials, handshakes, method, most)
		}
	}
}

func TestClustersAreNeverMixed(t *testing.T) {
	w := start(t)
	for _, cluster := range []string{"cluster1", "cluster2"} {
		w.agent(cluster, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			fmt.Fprint(rw, cluster, r.URL.Path)
		}), cluster)
	}
	client := w.client()
	var wg sync.WaitGroup
	for i := range 16 {
		cluster := fmt.Sprintf("cluster%d", i%2+1)
		wg.Go(func() {
			for n := range 20 {
				path := fmt.Sprintf("/%d/%d", i, n)
				if _, body := get(t, client, w.url+"/"+cluster+path, nil); body != cluster+path {
					t.Errorf("asked %s%s, got the answer of %s", cluster, path, body)
				}
			}
		})
	}
	wg.Wait()
}

func TestErrorsAreStatuses(t *testing.T) {
	w := start(t)
	w.api.User("managed", "jane")
	w.api.Allow("jane * clusters/proxy *")
	w.agent("cluster2", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the agent of cluster1 answered for cluster2")
	}), "cluster1") // the hostile one: a genuine certificate of another cluster
	w.hub.Forward(w.handlerAddress("cluster1"), "127.0.0.1:1")
	client := w.client("http/1.1")
	for _, tc := range []struct {
		name, path string
		header     http.Header
		code       int
		message    string
	}{
		{name: "unknown cluster", path: "/nowhere/api", code: 404, message: `no managed cluster "nowhere"`},
		{name: "no cluster", path: "/", code: 404, message: "/<cluster>/<Kubernetes path>"},
		{name: "dot segments", path: "/cluster1/%2e%2e/api", code: 400, message: "dot segment"},
		{name: "no agent", path: "/away/api", code: 503, message: "since 2026-03-01T12:00:00Z"},
		{name: "refused", path: "/cluster1/api", code: 502, message: "check the proxy-agent pods"},
		{name: "certificate of another cluster", path: "/cluster2/api", code: 502, message: `the certificate of the agent of cluster "cluster2" is not trusted (certificate)`},
		{name: "hop-by-hop trick", path: "/cluster1/api", header: http.Header{"Authorization": {"Bearer managed"}, "Connection": {"close, Authorization"}}, code: 400, message: "Connection header"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp, body := get(t, client, w.url+tc.path, tc.header)
			var status metav1.Status
			if err := json.Unmarshal([]byte(body), &status); err != nil || status.Kind != "Status" || status.Status != metav1.StatusFailure {
				t.Fatalf("%d with body %q, want a Status", resp.StatusCode, body)
			}
			if resp.StatusCode != tc.code || int(status.Code) != tc.code || !strings.Contains(status.Message, tc.message) {
				t.Errorf("%d: %q, want %d with %q", resp.StatusCode, status.Message, tc.code, tc.message)
			}
			if retry := resp.Header.Get("Retry-After"); retry != "" {
				t.Errorf("Retry-After %q, want none: it is there for good", retry)
			}
		})
	}
}

// TestLargeHeaderIs431 has headers end at 64 KiB, with a Status, and lets
// through all that are shorter, together with what the hub knows of the user.
func TestLargeHeaderIs431(t *testing.T) {
	w := start(t)
	var groups []string
	for i := range 500 {
		groups = append(groups, fmt.Sprintf("cn=group-%03d,ou=groups,%s", i, strings.Repeat("dc=example,", 8)))
	}
	w.api.User("hub-token", "jane", groups...)
	w.api.Allow("jane * clusters/proxy *")
	w.agent("cluster1", http.NotFoundHandler(), "cluster1")
	const rest = 400 // the other headers
	for _, protocol := range []string{"http/1.1", "h2"} {
		client := w.client()
		if protocol == "http/1.1" {
			client = w.client(protocol)
		}
		for size, want := range map[int]int{scope.MaxHeaderBytes - rest: 404, scope.MaxHeaderBytes: 431, readHeaderBytes - 2*rest: 431} {
			resp, body := get(t, client, w.url+"/cluster1/api", http.Header{"Authorization": {"Bearer hub-token"}, "X": {strings.Repeat("x", size)}})
			if resp.StatusCode != want || want == 431 && !strings.Contains(body, `"code":431`) {
				t.Errorf("%s, %d bytes: %d %.200s, want %d", protocol, size, resp.StatusCode, body, want)
			}
		}
		if resp, body := get(t, client, w.url+"/cluster1/"+strings.Repeat("x", scope.MaxHeaderBytes), nil); resp.StatusCode != 431 {
			t.Errorf("%s: a path that is too long is answered %d %.200s", protocol, resp.StatusCode, body)
		}
	}
	resp, _ := get(t, w.client("http/1.1"), w.url+"/cluster1/", http.Header{"X": {strings.Repeat("x", readHeaderBytes+5000)}})
	if resp.StatusCode != 431 {
		t.Errorf("more than is read is answered %d, want 431", resp.StatusCode)
	}
}

// TestStreams sends and receives piecemeal, then cancels.
func TestStreams(t *testing.T) {
	w := start(t)
	canceled := make(chan struct{})
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		lines := bufio.NewScanner(r.Body)
		_ = http.NewResponseController(rw).Flush()
		for lines.Scan() {
			fmt.Fprintln(rw, "event", lines.Text())
			_ = http.NewResponseController(rw).Flush()
		}
		<-r.Context().Done()
		close(canceled)
	}), "cluster1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body, feed := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/cluster1/watch", body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := bufio.NewScanner(resp.Body)
	for i := range 3 {
		fmt.Fprintln(feed, i)
		if !events.Scan() || events.Text() != fmt.Sprint("event ", i) {
			t.Fatalf("got %q, %v; want event %d", events.Text(), events.Err(), i)
		}
	}
	cancel()
	resp.Body.Close() // Go's client is stuck in feed otherwise
	select {
	case <-canceled:
	case <-time.After(5 * time.Second):
		t.Error("the agent did not learn that the client went away")
	}
}

func TestBigBodies(t *testing.T) {
	w := start(t)
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(rw, r.Body)
	}), "cluster1")
	const size = 24 << 20
	resp, err := w.client().Post(w.url+"/cluster1/echo", "x/y", io.LimitReader(strings.NewReader(strings.Repeat("0123456789abcdef", size/16)), size))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
		t.Errorf("%d of %d bytes came back: %v, want all", n, size, err)
	}
}

// upgraded is a handler that echoes after a change of protocol.
func upgraded(t *testing.T) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.Header.Get("Upgrade") != "SPDY/3.1" {
			t.Errorf("%s with Upgrade %q, want HTTP/1.1 with SPDY/3.1", r.Proto, r.Header.Get("Upgrade"))
		}
		conn, buffer, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4\r\n\r\n")
		_, _ = io.Copy(conn, buffer)
	})
}

// upgrade opens an upgraded connection through the proxy API.
func upgrade(t *testing.T, w *world) (*tls.Conn, *bufio.Reader) {
	t.Helper()
	config := pkitest.Load(t, pki.Files{CA: w.dir + "/proxy-api-ca.crt"}).ClientConfig("127.0.0.1")
	conn, err := tls.Dial("tcp", strings.TrimPrefix(w.url, "https://"), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprint(conn, "POST /cluster1/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("X-Stream-Protocol-Version") != "v4" {
		t.Fatalf("answered %d %v, want 101 and v4", resp.StatusCode, resp.Header)
	}
	return conn, reader
}

func echo(t *testing.T, conn io.Writer, reader *bufio.Reader, line string) {
	t.Helper()
	fmt.Fprintln(conn, line)
	if got, err := reader.ReadString('\n'); got != line+"\n" {
		t.Errorf("echo %q, %v; want %q", got, err, line+"\n")
	}
}

func TestUpgrade(t *testing.T) {
	w := start(t)
	w.agent("cluster1", upgraded(t), "cluster1")
	conn, reader := upgrade(t, w)
	echo(t, conn, reader, "hello")
	echo(t, conn, reader, strings.Repeat("x", 1<<20))
}

// TestDrainWaitsForUpgrades drains while a user is in a shell.
func TestDrainWaitsForUpgrades(t *testing.T) {
	w := start(t)
	w.agent("cluster1", upgraded(t), "cluster1")
	conn, reader := upgrade(t, w)
	w.stop()
	wait.Poll{Every: 10 * time.Millisecond, For: 20 * time.Second}.Until(t, "nothing listens any more", func() bool {
		probe, err := net.Dial("tcp", strings.TrimPrefix(w.url, "https://"))
		if err == nil {
			probe.Close()
		}
		return err != nil
	})
	if !w.server.health.Draining() {
		t.Error("still ready")
	}
	echo(t, conn, reader, "still here")
	select {
	case err := <-w.stopped:
		t.Fatalf("the drain cut off an upgraded connection: %v", err)
	default:
	}
	conn.Close()
	if err := w.ended(); err != nil {
		t.Error(err)
	}
}

func TestVanishedClusterIsCutOff(t *testing.T) {
	w := start(t)
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	}), "cluster1")
	resp, err := w.client().Get(w.url + "/cluster1/watch")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	w.server.agents.Evict("cluster1")
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the watch ended as if it were complete")
	}
}
