package chain

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// canary is text that must not get where it has no business. It has its mark in
// every 16 bytes, as many as a line of a hex dump shows.
func canary(mark string) string { return strings.Repeat(mark, 8) }

// canaries are by what they stand for. The mark of the hub user's token is part
// of token.
var canaries = map[string]string{
	"a token of the hub": "ZKQXJ", "a token of the cluster": "QJZXW", "a cookie": "XQZJV", "a token for WebSockets": "JXQZP", "a body": "VQXZK",
	"a query": "WZQJX", "an answer": "PXZQJ", "a cookie of an answer": "KJQZX", "what the user wants to be taken for": "ZXJQV", "a header": "QZVXJ",
}

// answering is a kube-apiserver whose answers have canaries.
var answering = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Set-Cookie", "session="+canary(canaries["a cookie of an answer"]))
	fmt.Fprint(w, canary(canaries["an answer"]))
})

// sendCanaries sends requests of all kinds, by the hub's user and by one whom only
// the cluster knows.
func sendCanaries(t *testing.T, w *world) {
	t.Helper()
	webSocket := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token)) + ", v4.channel.k8s.io, " + canary(canaries["a token for WebSockets"])
	for _, major := range []int{1, 2} {
		for name, tc := range map[string]struct {
			method string
			header http.Header
		}{
			"read": {http.MethodGet, nil}, "write": {http.MethodPost, nil},
			"as another": {http.MethodPost, http.Header{"Impersonate-User": {canary(canaries["what the user wants to be taken for"])}}},
			"pass":       {http.MethodPost, http.Header{"Authorization": {"Bearer " + canary(canaries["a token of the cluster"])}}},
			"exec":       {http.MethodGet, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {webSocket}, "Authorization": nil}},
		} {
			if major == 2 && name == "exec" {
				continue
			}
			var body io.Reader
			if tc.method == http.MethodPost {
				body = strings.NewReader(canary(canaries["a body"]))
			}
			r := w.request(tc.method, "/api/v1/canaries?a="+canary(canaries["a query"]), body)
			r.Header.Set("Cookie", "a="+canary(canaries["a cookie"]))
			r.Header.Set("X-A", canary(canaries["a header"]))
			for key, values := range tc.header {
				r.Header[key] = values
			}
			resp, err := w.client(major).Do(r)
			if err != nil {
				t.Fatalf("asking %s: %v", name, err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK || string(got) != canary(canaries["an answer"]) {
				t.Errorf("%s over HTTP/%d: %d %q, %v, want 200 with the canary", name, major, resp.StatusCode, got, err)
			}
		}
	}
}

// TestNothingIsLogged has every process log all that it can.
func TestNothingIsLogged(t *testing.T) {
	w := start(t, answering, options{verbosity: 10})
	sendCanaries(t, w)
	for _, p := range []*process{w.server, w.agent, w.api} {
		p.kill() // so that all of its output is here
		out := p.output()
		for what, mark := range canaries {
			if what == "what the user wants to be taken for" {
				continue // the hub is asked about this name, and told which
			}
			if i := strings.Index(out, mark); i >= 0 {
				t.Errorf("%s logs %s: ...%s...", p.name, what, out[max(0, i-300):min(len(out), i+100)])
			}
		}
		if own := base64.RawURLEncoding.EncodeToString([]byte(token)); strings.Contains(out, own[:20]) {
			t.Errorf("%s logs a token as WebSockets have it", p.name)
		}
		for _, own := range []string{"of-the-agent", "of-the-proxy-api"} {
			if strings.Contains(out, own) {
				t.Errorf("%s logs the credential %q", p.name, own)
			}
		}
	}
	// The verbosity has come through: these are client-go's, of the proxy API's own requests.
	if out := w.api.output(); !strings.Contains(out, "Response Body") {
		t.Error("the proxy API does not log at --v=10 as it should")
	}
}
