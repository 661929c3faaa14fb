package proxyapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// TestNoCredentialIs401 has callers without a credential refused before anything
// is dialed, with the same answer for clusters that exist and that do not.
func TestNoCredentialIs401(t *testing.T) {
	w := start(t, func(o *Options) { o.AllowAnonymous = false })
	w.agent("cluster1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the cluster saw the request") }), "cluster1")
	client := w.client("http/1.1")
	const service = "/api/v1/namespaces/a/services/b/proxy-service/x"
	var want string
	for _, path := range []string{"/cluster1/version", "/nowhere/version", "/away/version", "/cluster1" + service, "/nowhere" + service, scope.ClustersPath + "cluster1/proxy/version"} {
		resp, body := get(t, client, w.url+path, http.Header{})
		if want == "" {
			want = body
		}
		if resp.StatusCode != http.StatusUnauthorized || body != want {
			t.Errorf("%s: %d %s, want 401 %s", path, resp.StatusCode, body, want)
		}
	}
	for _, path := range []string{"/livez", "/healthz"} {
		if resp, body := get(t, client, w.url+path, http.Header{}); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s, want 200", path, resp.StatusCode, body)
		}
	}
	if dials := w.hub.Dials(w.handlerAddress("cluster1")); dials != 0 {
		t.Errorf("%d dials, want none", dials)
	}
}

// TestUnknownTokensDoNotTellClustersApart sends tokens that neither the hub nor a
// cluster knows, and then one that a cluster has accepted.
func TestUnknownTokensDoNotTellClustersApart(t *testing.T) {
	w := start(t)
	w.api.User("hub-token", "jane")
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer of-cluster1" {
			rw.Header().Set("Www-Authenticate", "Bearer")
			status.Write(rw, status.New(http.StatusUnauthorized, "Unauthorized").ErrStatus)
		}
	}), "cluster1")
	w.hub.Forward(w.handlerAddress("cluster2"), "127.0.0.1:1")
	client := w.client("http/1.1")
	answer := func(token, path string) (int, string, []string) {
		t.Helper()
		resp, body := get(t, client, w.url+path, http.Header{"Authorization": {"Bearer " + token}})
		var names []string
		for _, name := range []string{"Www-Authenticate", "Retry-After", "Content-Type", "Cache-Control"} {
			names = append(names, name+": "+resp.Header.Get(name))
		}
		return resp.StatusCode, body, names
	}
	code, body, header := answer("bad", "/cluster1/version")
	if code != http.StatusUnauthorized {
		t.Fatalf("a cluster that refused the token: %d %s, want 401", code, body)
	}
	for name, path := range map[string]string{"no cluster": "/nowhere/version", "no agent": "/away/version", "an agent that is broken": "/cluster2/version"} {
		gotCode, gotBody, gotHeader := answer("bad", path)
		if gotCode != code || gotBody != body || !cmp.Equal(gotHeader, header) {
			t.Errorf("%s: %d %s %q, want as of a cluster that refused the token: %d %s %q", name, gotCode, gotBody, gotHeader, code, body, header)
		}
	}
	// A token that is good at one cluster learns about that one only.
	if code, body, _ := answer("of-cluster1", "/cluster1/version"); code != http.StatusOK {
		t.Fatalf("answered %d %s, want 200", code, body)
	}
	if code, _, _ := answer("of-cluster1", "/nowhere/version"); code != http.StatusUnauthorized {
		t.Errorf("a token of another cluster, no cluster: %d", code)
	}
	w.hub.Stop()
	if code, body, _ := answer("of-cluster1", "/cluster1/version"); code < 500 {
		t.Errorf("a cluster that accepted the token before and cannot be reached: %d %s", code, body)
	}
	// A user of the hub who may reach no cluster has 403 for all of them.
	for _, cluster := range []string{"cluster1", "nowhere"} {
		if code, body, _ := answer("hub-token", "/"+cluster+"/version"); code != http.StatusForbidden || !strings.Contains(body, "clusters/proxy") {
			t.Errorf("%s: %d %s, want 403", cluster, code, body)
		}
	}
}
