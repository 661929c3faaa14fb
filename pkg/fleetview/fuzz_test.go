package fleetview

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	pathpkg "path"
	"strings"
	"testing"

	reading "open-cluster-management.io/cluster-proxy/pkg/apirequest"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/discovery"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// FuzzServe sends requests of any kind to a view. It must not panic, and the members must
// get no request that is not about the resource and the name of the view's.
func FuzzServe(f *testing.F) {
	token := version.Continue{Time: 1_795_381_200_000_000, Next: "b", Member: "from-1-of-102", Deferred: []string{"a"}, Clusters: 1 << 30, Items: 1}.String()
	at := version.Version{Time: 1_795_381_200_000_000, Cluster: version.Number("uid-of-a"), Member: 101}.String()
	for _, seed := range []struct{ method, url, accept, contentType, body string }{
		{"GET", shop + "?limit=1&continue=" + token, "", "", ""},
		{"GET", shop + "?limit=1&fieldSelector=metadata.cluster%3Da,metadata.name%3Dweb@b", request.ProtobufType, "", ""},
		{"GET", shop + "/web-0000@a?resourceVersion=" + at, "application/json;as=Table;v=v1;g=meta.k8s.io", "", ""},
		{"GET", "//api/v1/namespaces/shop%2F../pods/web-0000%2f%2e%2e@b/log/", "", "", ""},
		{"GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/x@y@a", "*/*;q=0.1,text/html", "", ""},
		{"GET", "/api/v1/namespaces/shop/services/web@a/proxy/x%2F..//y", "", "", ""},
		{"PUT", shop + "/web-0000@a", "", fleet.JSONType, `{"metadata":{"name":"web-0000","resourceVersion":"` + at + `"}}`},
		{"POST", shop, "", fleet.JSONType, `{"metadata":{"name":"x@b"}}`},
		{"PATCH", shop + "/web-0000@a", "", "application/json-patch+json", `[{"op":"test","path":"/metadata/resourceVersion","value":"` + at + `"}]`},
		{"PATCH", shop + "/web-0000", "", "application/apply-patch+yaml", "metadata: {name: web-0000@b}"},
		{"DELETE", shop + "?fieldSelector=metadata.cluster!%3Da", "", fleet.JSONType, `{"preconditions":{"resourceVersion":"` + at + `"}}`},
		{"GET", strings.Replace(shop, "shop", "shop@a", 1) + "?labelSelector=app%3Dweb@a," + fleet.AnnotationCluster + "+in+(a)", "", "", ""},
		{"GET", "/api/v1/namespaces/shop/services/https:web@a:8443/proxy/x", "", "", ""},
		{"POST", shop, "", fleet.JSONType, `{"metadata":{"name":"x@b-1","ownerReferences":[{"name":"y@b"}]},"spec":{"nodeName":"n@b"}}`},
		{"HEAD", "/api/v1/proxy/pods", "", "", ""},
	} {
		f.Add(seed.method, seed.url, seed.accept, seed.contentType, seed.body)
	}
	f.Fuzz(func(t *testing.T, method, target, accept, contentType, body string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(target, "/") || discovery.IsDiscovery(u.Path) {
			return
		}
		if query := u.Query(); query.Has("watch") {
			return // it does not end
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", strings.NewReader(body))
		r.Method, r.URL = method, u
		r.Header.Set("Accept", accept)
		r.Header.Set("Content-Type", contentType)
		info, err := reading.Resolver.NewRequestInfo(r)
		if err != nil {
			return
		}
		a, b := newCluster("a", pods(3)...), newCluster("b", pods(1)...)
		view := testView(a, b)
		view.Relay = func(w http.ResponseWriter, r *http.Request, to fleet.Member) {
			checkRequest(t, u, info.Resource, r.URL)
		}
		New(Options{}).Serve(httptest.NewRecorder(), r, view)
		for _, c := range []*cluster{a, b} {
			for _, asked := range c.asked() {
				got, err := url.Parse(asked.url)
				if err != nil {
					t.Fatalf("%s %q: the member got %q: %v", method, target, asked.url, err)
				}
				checkRequest(t, u, info.Resource, got)
			}
		}
	})
}

// checkRequest checks that a member's request is about what the view's is about.
func checkRequest(t *testing.T, view *url.URL, resource string, member *url.URL) {
	t.Helper()
	if clean := pathpkg.Clean(member.Path); clean != strings.TrimRight(member.Path, "/") && !strings.Contains(member.Path, "/proxy/") {
		t.Errorf("view got %q, the member %q, which is not clean", view, member)
	}
	r := &http.Request{Method: http.MethodGet, URL: member}
	info, err := reading.Resolver.NewRequestInfo(r)
	if err != nil || info.Resource != resource {
		t.Errorf("view got %q about %q, the member %q about %+v, %v", view, resource, member, info, err)
		return
	}
	// All that is taken out of a path is @CLUSTER, behind a name.
	want := strings.Split(strings.Trim(view.Path, "/"), "/")
	got := strings.Split(strings.Trim(member.Path, "/"), "/")
	if len(want) < len(got) {
		t.Errorf("view got %q, the member %q", view, member)
		return
	}
	for i := range got {
		if got[i] != want[i] && got[i]+"@a" != want[i] && got[i]+"@b" != want[i] && !strings.HasSuffix(want[i], ":"+got[i]) && !strings.Contains(want[i], ":"+got[i]+":") &&
			strings.Replace(want[i], "@a:", ":", 1) != got[i] && strings.Replace(want[i], "@b:", ":", 1) != got[i] {
			t.Errorf("view got %q, the member %q", view, member)
		}
	}
}
