package proxyapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/test/testkit/browser"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// TestCrossSiteRequests has what browsers say of a request, with a client certificate and without.
func TestCrossSiteRequests(t *testing.T) {
	t.Run("with the page", func(t *testing.T) { testCrossSiteRequests(t, start(t, withUI)) })
	t.Run("without it", func(t *testing.T) { testCrossSiteRequests(t, start(t)) })
}

func testCrossSiteRequests(t *testing.T, w *world) {
	w.api.Allow("root * clusters/proxy *", "root * clusters/stream *")
	w.api.User("roots-token", "root")
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "{}") }), "cluster1")
	w.waitForCAs()
	certificate, token := w.withCertificate("users", "root"), http.Header{"Authorization": {"Bearer roots-token"}}
	frontProxy := w.withCertificate("front-proxy", "front-proxy-client")
	same := strings.TrimSuffix(w.url, "/")
	for _, tc := range []struct {
		name   string
		client *http.Client
		method string
		header http.Header
		want   int
	}{
		{"kubectl", certificate, http.MethodPost, nil, 200},
		{"the page", certificate, http.MethodGet, http.Header{"Sec-Fetch-Site": {"same-origin"}}, 200},
		{"the page writes", certificate, http.MethodDelete, http.Header{"Sec-Fetch-Site": {"same-origin"}, "Origin": {same}}, 200},
		{"an address that was typed", certificate, http.MethodGet, http.Header{"Sec-Fetch-Site": {"none"}, "Sec-Fetch-Mode": {"navigate"}}, 200},
		{"a link", certificate, http.MethodGet, http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}}, 200},
		{"a link in a frame", certificate, http.MethodGet, http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"iframe"}}, 403},
		{"a link that upgrades", certificate, http.MethodGet, http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, 403},
		{"an image", certificate, http.MethodGet, http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"no-cors"}}, 403},
		{"a form", certificate, http.MethodPost, http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}, "Origin": {"https://evil.test"}}, 403},
		{"a form of another port", certificate, http.MethodPost, http.Header{"Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}}, 403},
		{"another site deletes", certificate, http.MethodDelete, http.Header{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.test"}}, 403},
		{"an older browser", certificate, http.MethodPost, http.Header{"Origin": {"https://evil.test"}}, 403},
		{"a sandbox", certificate, http.MethodPost, http.Header{"Origin": {"null"}}, 403},
		{"a prefix of the origin", certificate, http.MethodPost, http.Header{"Origin": {same + ".evil.test"}}, 403},
		{"another port", certificate, http.MethodPost, http.Header{"Origin": {"https://127.0.0.1"}}, 403},
		{"a program with the port's own origin", certificate, http.MethodPost, http.Header{"Origin": {same}}, 200},
		{"a WebSocket", certificate, http.MethodGet, http.Header{"Origin": {"https://evil.test"}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, 403},
		{"a WebSocket with a token that it chose", certificate, http.MethodGet, http.Header{"Origin": {"https://evil.test"}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.eA, v5.channel.k8s.io"}}, 403},
		{"a password that the browser has kept", certificate, http.MethodPost, http.Header{"Origin": {"https://evil.test"}, "Authorization": {"Basic eDp5"}}, 403},
		{"a token without a certificate", w.client(), http.MethodPost, http.Header{"Origin": {"https://evil.test"}, "Sec-Fetch-Site": {"cross-site"}, "Authorization": token["Authorization"]}, 200},
		{"behind the hub's kube-apiserver", frontProxy, http.MethodPost, http.Header{"Origin": {"https://console.test"}, "Sec-Fetch-Site": {"cross-site"}, "X-Remote-User": {"root"}}, 200},
	} {
		for _, path := range []string{"/cluster1/version", scope.ClustersPath + "cluster1/proxy/version"} {
			r, err := http.NewRequestWithContext(t.Context(), tc.method, w.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, values := range tc.header {
				r.Header[name] = values
			}
			resp, err := tc.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != tc.want {
				t.Errorf("%s at %s: %d, want %d", tc.name, path, resp.StatusCode, tc.want)
			}
		}
	}
}

// arrivals are what came to a cluster.
type arrivals struct {
	mu   sync.Mutex
	what []string
}

func (a *arrivals) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.what = append(a.what, r.Method+" "+r.URL.Path+" as "+r.Header.Get("X-Remote-User"))
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, "{}")
}

// all returns and forgets them.
func (a *arrivals) all() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := strings.Join(a.what, ", ")
	a.what = nil
	return all
}

// attack is a page that has the browser send what it can, and says when it is over.
const attack = `<iframe name=frame></iframe><form method=post target=frame action="%[1]s/api/v1/namespaces/ns/pods?by=form"><input name=a></form><script>
document.forms[0].submit();
const ask = (what, options) => fetch("%[1]s/api/v1/namespaces/ns/pods?by=" + what, {credentials: 'include', ...options}).catch(() => {});
const shell = new Promise(over => { const s = new WebSocket("wss:" + "%[1]s".slice(6) + "/api/v1/namespaces/ns/pods/p/exec?command=id&stdout=1", ["v5.channel.k8s.io"]); s.onclose = s.onopen = over; });
const image = new Promise(over => { const i = new Image(); i.onload = i.onerror = over; i.src = "%[1]s/api/v1/pods?by=image"; });
const frame = new Promise(over => { document.querySelector('iframe').onload = over; });
Promise.all([ask('fetch', {method: 'POST', mode: 'no-cors', body: '{}'}), ask('cors', {method: 'POST', body: '{}'}), ask('delete', {method: 'DELETE'}),
  ask('read', {}), ask('claims', {headers: {'X-Remote-User': 'admin'}}), shell, image, frame]).then(() => { document.title = 'over'; });
</script>`

// TestPageWithClientCertificate has a browser whose user has a client certificate: the page needs no
// token. Then pages of two other sites try to ride on the certificate, and one that a cluster serves.
func TestPageWithClientCertificate(t *testing.T) {
	browser.Needs(t)
	w := pageWorld(t, 2)
	w.api.Allow("root * clusters/proxy *", "root * clusters/stream *")
	w.waitForCAs()
	var came arrivals
	w.agent("prod-cluster-001", &came, "prod-cluster-001")
	target := w.url + "/prod-cluster-001"
	page := fmt.Sprintf(attack, target)
	w.agent("staging-cluster-002", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		fmt.Fprint(rw, page)
	}), "staging-cluster-002")
	files := pkitest.Issue(t, filepath.Join(t.TempDir(), "root"), w.cas["users"], pki.Leaf{CommonName: "root", Client: true}, w.hubCA)
	p := browser.OpenWithCertificate(t, files.Cert, files.Key, w.url, filepath.Join(w.dir, "proxy-api-ca.crt"))
	p.Go(w.url + "/ui/")
	p.WaitFor(rowsShown + ` === 2 && document.getElementById('leave').hidden && document.getElementById('signin').hidden`)
	checkPage(t, p)

	other := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		fmt.Fprint(rw, page)
	}))
	defer other.Close()
	defer other.CloseClientConnections()
	came.all()
	for _, from := range []string{other.URL, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), w.url + "/staging-cluster-002/index.html"} {
		p.Go(from)
		p.WaitFor(`document.title === 'over'`)
		if got := came.all(); got != "" {
			t.Errorf("a page at %s has had the browser send %s", from, got)
		}
	}
	// A link is followed, with the certificate: it is what the other requests came with.
	p.Eval(`location = "` + target + `/version"`)
	p.WaitFor(`location.pathname === '/prod-cluster-001/version' && document.readyState === 'complete'`)
	if got := came.all(); !strings.HasPrefix(got, "GET /version as root") {
		t.Errorf("a link leads to %q, want the version, as root", got)
	}
}
