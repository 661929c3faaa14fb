package apihandler

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/rawhttp"
)

// checkSmuggling sends the corpus, of which each request for /first has the header
// lines of head. Requests must arrive as they were sent, and the hidden one
// must have nothing of the other's, which isFirst knows by its header.
func checkSmuggling(t *testing.T, seen *rawhttp.Recorder, dial func() net.Conn, head string, isFirst func(http.Header) bool) {
	t.Helper()
	whole := 0
	for name, raw := range rawhttp.Smuggling("/first", "/"+rawhttp.Smuggled, head) {
		if err := rawhttp.Talk(dial(), raw+"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		left := append(rawhttp.Parse(raw), rawhttp.Request{URI: "/last"})
		for _, r := range seen.Take() {
			whole++
			i := slices.Index(left, r.Request)
			if i < 0 {
				t.Errorf("%q: %+v arrived, which nothing has sent", name, r.Request)
				continue
			}
			left = slices.Delete(left, i, i+1)
			if first := strings.HasPrefix(r.URI, "/first"); first != isFirst(r.Header) || first && len(r.Header["X-Smuggled"]) > 0 {
				t.Errorf("%q: %s arrived with %v", name, r.URI, r.Header)
			}
		}
	}
	if whole < 20 {
		t.Errorf("%d requests arrived: too few, something is wrong with the test", whole)
	}
}

// dialRaw is a connection of the proxy API's to the handler.
func (f *fixture) dialRaw(t *testing.T, protocol string) net.Conn {
	t.Helper()
	config := f.tls(t, f.hubCA, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true})
	config.NextProtos = []string{protocol}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(f.url, "https://"), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestSmuggledRequests(t *testing.T) {
	seen := &rawhttp.Recorder{}
	f := start(t, seen.ServeHTTP)
	config := f.tls(t, f.hubCA, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true})
	config.NextProtos = []string{"http/1.1"}
	checkSmuggling(t, seen, func() net.Conn {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(f.url, "https://"), config)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}, "X-Remote-User: jane\r\n", func(h http.Header) bool { return h.Get("Impersonate-User") == "jane" })
}

// TestSmuggledRequestsToServices has HTTP/1.1 on both sides.
func TestSmuggledRequestsToServices(t *testing.T) {
	seen := &rawhttp.Recorder{}
	front := startServices(t, &cluster{names: map[string][]string{"web.default.svc": {"10.96.0.10"}}}, agentapi.ExposedServices{{Namespace: "default", Service: "web"}}, seen.ServeHTTP)
	var head strings.Builder
	if err := wants("http", "default", "web", "80").Write(&head); err != nil {
		t.Fatal(err)
	}
	checkSmuggling(t, seen, func() net.Conn { return dialFront(t, front) }, head.String()+"X-First: 1\r\n", func(h http.Header) bool { return h.Get("X-First") == "1" })
}

func dialFront(t *testing.T, front *httptest.Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestForgedHeadersOverHTTP2 adds identity headers to a request of jane's, as a proxy
// API might pass on that had missed them. The kube-apiserver must see jane, or nothing.
func TestForgedHeadersOverHTTP2(t *testing.T) {
	seen := &rawhttp.Recorder{}
	f := start(t, seen.ServeHTTP)
	head := rawhttp.Fields{":method", "POST", ":scheme", "https", ":authority", "x", ":path", "/forged", "x-remote-user", "jane", "x-remote-group", "devs"}
	ask := func(fields, trailer rawhttp.Fields) int {
		conn := f.dialRaw(t, "h2")
		defer conn.Close()
		code, err := rawhttp.HTTP2(conn, fields, "body", trailer)
		if err != nil {
			t.Error(err)
		}
		return code
	}
	if code := ask(head, nil); code != http.StatusOK {
		t.Fatalf("without a forged header: answered %d, want 200", code)
	}
	honest := seen.Take()[0]
	codes := map[int]int{}
	for name, value := range map[string]string{
		"Impersonate-User": "admin", "Impersonate-Group": "system:masters", "Impersonate-Extra-Reason": "because",
		"X-Remote-User": "admin", "X-Remote-Uid": "0", "Authorization": "Bearer nobodys", "Cluster-Proxy-Service": "kubernetes",
	} {
		for how, fields := range rawhttp.Forgeries(head, name, value) {
			if name == "X-Remote-Uid" && slices.Contains([]string{"as it is", "host besides"}, how) {
				continue // that is not another user
			}
			code := ask(fields[0], fields[1])
			codes[code]++
			for _, r := range seen.Take() {
				if diff := cmp.Diff(identityOf(honest), identityOf(r)); diff != "" || r.Request != honest.Request {
					t.Errorf("%s %s: %d, %+v (-themselves +taken for):\n%s", name, how, code, r.Request, diff)
				}
			}
		}
	}
	t.Logf("answers: %v", codes)
	if codes[200] == 0 || codes[0] == 0 || codes[400] == 0 {
		t.Errorf("answers %v: too few kinds, something is wrong with the test", codes)
	}
}

// identityOf is everything in a request that some server could take for who it is
// from.
func identityOf(r rawhttp.Arrival) map[string][]string {
	found := map[string][]string{}
	for where, header := range map[string]http.Header{"": r.Header, "trailer ": r.Trailer} {
		for name, values := range header {
			plain := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
			if len(values) > 0 && slices.ContainsFunc([]string{"impersonate-", "x-remote-", "authorization", "cluster-proxy-"}, func(prefix string) bool { return strings.HasPrefix(plain, prefix) }) {
				found[where+name] = values
			}
		}
	}
	return found
}
