package chain

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/test/testkit/rawhttp"
)

// talk sends raw bytes to the proxy API, and reads until that ends the connection
// or has nothing to say any more.
func (w *world) talk(raw string) {
	conn, _ := w.dial()
	_ = rawhttp.Talk(conn, raw+"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}

// TestSmuggledRequests hides requests from the proxy API, and from whatever comes
// after it: nobody may take them for the user's, whose connection they come on.
func TestSmuggledRequests(t *testing.T) {
	seen := &rawhttp.Recorder{}
	w := start(t, seen, options{})
	seen.Take()
	whole := 0
	corpus := func(i int) map[string]string { // in which targets have a number, since a busy chain passes some on later
		return rawhttp.Smuggling(fmt.Sprintf("/%s/first-%d", cluster, i), fmt.Sprintf("/%s/%s-%d", cluster, rawhttp.Smuggled, i), "Authorization: Bearer "+token+"\r\n")
	}
	var left []rawhttp.Request
	for i, name := range slices.Sorted(maps.Keys(corpus(0))) {
		raw := corpus(i)[name]
		w.talk(raw)
		left = append(left, rawhttp.Parse(raw)...)
		for _, r := range seen.Take() {
			whole++
			if strings.HasPrefix(r.URI, "/"+rawhttp.Smuggled) {
				t.Errorf("%q: the hidden request arrived", name)
			}
			at := slices.Index(left, rawhttp.Request{URI: "/" + cluster + r.URI, Body: r.Body})
			if at < 0 {
				t.Errorf("%q: the cluster got %s with the body %q, which nobody has sent", name, r.URI, r.Body)
				continue
			}
			left = slices.Delete(left, at, at+1)
			if user := r.Header.Get("Impersonate-User"); user != hubUser || len(r.Header["X-Smuggled"]) > 0 {
				t.Errorf("%q: %s arrived of %q, want %q; its header is %v", name, r.URI, user, hubUser, r.Header)
			}
		}
	}
	if whole < 20 {
		t.Errorf("%d requests arrived: too few, something is wrong with the test", whole)
	}
}

// forgedHeaders would make a user another user, or a request another request.
var forgedHeaders = map[string]string{
	"Impersonate-User": "admin", "Impersonate-Group": "system:masters", "Impersonate-Uid": "0", "Impersonate-Extra-Reason": "because",
	"X-Remote-User": "admin", "X-Remote-Group": "system:masters", "X-Remote-Uid": "0", "X-Remote-Extra-Reason": "because",
	"X-Forwarded-For": "192.0.2.99", "X-Forwarded-Host": "victim", "Forwarded": "for=192.0.2.99",
	"Authorization": "Bearer nobodys", "Cluster-Proxy-Service": "kubernetes", "Cluster-Proxy-Namespace": "default", "Cluster-Proxy-Proto": "https",
}

// TestForgedHeadersOverHTTP2 sends header fields that no HTTP/2 client would send,
// by which a user pretends to be another one. The cluster must see the user under
// their own name, or get nothing.
func TestForgedHeadersOverHTTP2(t *testing.T) {
	seen := &rawhttp.Recorder{}
	w := start(t, seen, options{})
	seen.Take()
	config := w.user.ClientConfig("127.0.0.1")
	config.NextProtos = []string{"h2"}
	ask := func(what string, fields, trailer rawhttp.Fields) int {
		conn, err := tls.Dial("tcp", w.address, config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(testTimeout))
		code, err := rawhttp.HTTP2(conn, fields, "body", trailer)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return code
	}
	head := rawhttp.Fields{":method", "POST", ":scheme", "https", ":authority", w.address, ":path", "/" + cluster + "/forged", "authorization", "Bearer " + token}
	if code := ask("no forged header", head, nil); code != http.StatusOK {
		t.Fatalf("without a forged header: answered %d, want 200", code)
	}
	honest := seen.Take()[0]
	codes := map[int]int{}
	for name, value := range forgedHeaders {
		for how, fields := range rawhttp.Forgeries(head, name, value) {
			what := fmt.Sprintf("%s %s", name, how)
			code := ask(what, fields[0], fields[1])
			codes[code]++
			if !slices.Contains([]int{0, 200, 400, 401, 403, 431}, code) {
				t.Errorf("%s: answered %d, want no answer, 200, 400, 401, 403 or 431", what, code)
			}
			arrived := seen.Take()
			for _, r := range arrived {
				if r.URI != "/forged" || r.Method != honest.Method || r.Body != honest.Body || len(arrived) != 1 || code != http.StatusOK {
					t.Errorf("%s: %d requests arrived, one of them %s %s with body %q, and the answer was %d; want one %s /forged with %q, and 200",
						what, len(arrived), r.Method, r.URI, r.Body, code, honest.Method, honest.Body)
				}
				if diff := cmp.Diff(identityOf(honest), identityOf(r)); diff != "" {
					t.Errorf("%s (-themselves +taken for):\n%s", what, diff)
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
	identity := map[string][]string{}
	for where, header := range map[string]http.Header{"": r.Header, "trailer ": r.Trailer} {
		for name, values := range header {
			plain := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
			for _, prefix := range []string{"impersonate-", "x-remote-", "authorization", "proxy-authorization", "cluster-proxy-", "x-forwarded-", "forwarded", "x-smuggled"} {
				if strings.HasPrefix(strings.TrimSpace(plain), prefix) && len(values) > 0 {
					identity[where+name] = values
				}
			}
			for _, value := range values {
				if strings.ContainsAny(value, "\r\n\x00") {
					identity[where+name] = values
				}
			}
		}
	}
	return identity
}
