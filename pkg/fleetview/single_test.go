package fleetview

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/discovery"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// singleView is a view that is of one cluster and can have no other.
func singleView(c *cluster) fleet.View {
	view := testView(c)
	view.Single = true
	view.Relay = func(w http.ResponseWriter, r *http.Request, to fleet.Member) { to.(*cluster).ServeHTTP(w, r) }
	return view
}

// TestSingleIsTheCluster sends the same requests to a cluster and to a view of another one
// like it, and wants the same answers, byte for byte.
func TestSingleIsTheCluster(t *testing.T) {
	const table, partial = "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	paths := append(pods(5), shop+"/web", "/apis/example.com/v1/namespaces/shop/widgets/w", roles+"/ann@example.com")
	direct, member := newCluster("a", paths...), newCluster("a", paths...)
	view, h := singleView(member), New(Options{})
	for _, test := range []struct{ method, url, accept, contentType, body string }{
		{"GET", shop, "", "", ""}, {"GET", "/api/v1/pods", table, "", ""}, {"GET", "/api/v1/pods?limit=2", table, "", ""}, {"GET", shop + "?limit=2", partial, "", ""},
		{"GET", shop + "?limit=2&continue=from-2-of-108&x=%2f&a=1", "", "", ""}, {"GET", shop + "?continue=nonsense", "", "", ""}, {"GET", shop, request.ProtobufType, "", ""},
		{"GET", shop + "/web", "", "", ""}, {"GET", shop + "/web", table, "", ""}, {"GET", shop + "/none", "", "", ""}, {"GET", roles + "/ann@example.com", "", "", ""},
		{"GET", "/apis/example.com/v1/widgets", "application/yaml", "", ""}, {"GET", "/apis/example.com/v1/widgets", "text/plain", "", ""},
		{"GET", shop + "?fieldSelector=metadata.name%3Dweb,spec.x!%3D1", "", "", ""}, {"GET", shop + "?fieldSelector=a=b=c", "", "", ""}, {"GET", shop + "?resourceVersion=17", "", "", ""},
		{"GET", "/apis", "", "", ""}, {"GET", "/openapi/v3", "", "", ""}, {"GET", "/healthz/etcd?verbose", "", "", ""}, {"GET", "/api/v1//pods", "", "", ""},
		{"GET", "/api/v1/namespaces/shop/pods/a%2Fb", "", "", ""}, {"OPTIONS", shop, "", "", ""}, {"HEAD", shop + "/web", "", "", ""},
		{"POST", shop, "", fleet.JSONType, ` {"kind":"Pod", "apiVersion":"v1","metadata":{"name":"new","annotations":{"mail":"x@a"}}} `},
		{"POST", shop, "", fleet.JSONType, `{"kind":"Pod","metadata":`}, {"POST", shop, "", "text/plain", "pod"}, {"POST", shop, "", fleet.JSONType, strings.Repeat(" ", maxBody+7)},
		{"PATCH", shop + "/web", "", "application/merge-patch+json", `{"metadata":{"labels":{"a":"b"}}}`}, {"DELETE", shop + "/web-0001", "", fleet.JSONType, `{"propagationPolicy":"Background"}`},
		{"GET", shop, "", "", ""},
	} {
		what := fmt.Sprintf("%s %s as %q with %.80q", test.method, test.url, test.accept, test.body)
		request := func() *http.Request {
			r := httptest.NewRequestWithContext(t.Context(), test.method, test.url, strings.NewReader(test.body))
			r.Header.Set("Accept", test.accept)
			r.Header.Set("Content-Type", test.contentType)
			r.Header.Set("User-Agent", "tester/1")
			return r
		}
		want, got := httptest.NewRecorder(), httptest.NewRecorder()
		direct.ServeHTTP(want, request())
		h.Serve(got, request(), view)
		if diff := cmp.Diff(want.Body.String(), got.Body.String()); diff != "" || got.Code != want.Code || !cmp.Equal(want.Header(), got.Header()) {
			t.Errorf("%s: got %d %v, want %d %v (-want +got):\n%s", what, got.Code, got.Header(), want.Code, want.Header(), diff)
		}
		if diff := cmp.Diff(direct.asked(), member.asked(), cmp.AllowUnexported(asked{})); diff != "" {
			t.Errorf("%s: the cluster got another request (-want +got):\n%s", what, diff)
		}
	}
}

// TestSingleByName has the cluster's name in requests, as other views want it, and what
// objects of other views have.
func TestSingleByName(t *testing.T) {
	ofView := version.Version{Time: 1_800_000_000_000_000, Cluster: version.Number("uid-of-a"), Member: 101}.String()
	annotated := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"new","annotations":{"` + fleet.AnnotationCluster + `":"%s"}}}`
	for name, test := range map[string]struct {
		method, url, body string
		// want is what the cluster gets; or what the refusal says.
		want, wantBody string
		code           int
	}{
		"an object":                 {method: "GET", url: shop + "/web@a?x=1", want: "GET " + shop + "/web?x=1"},
		"a subresource":             {method: "PUT", url: shop + "/web%40a/status", want: "PUT " + shop + "/web/status"},
		"a selector":                {method: "GET", url: shop + "?fieldSelector=metadata.name%3Dweb@a&watch=1", want: "GET " + shop + "?fieldSelector=metadata.name%3Dweb&watch=1"},
		"a selector of the cluster": {method: "DELETE", url: shop + "?fieldSelector=metadata.cluster%3Da", want: "DELETE " + shop},
		"a selector of another":     {method: "GET", url: shop + "?fieldSelector=metadata.cluster%3Db", code: 404, want: `no cluster "b" that you may reach; it has: a`},
		"not the cluster":           {method: "GET", url: shop + "?fieldSelector=metadata.cluster!%3Da", code: 404, want: "no cluster that all selectors of the request choose; it has: a"},
		"another cluster":           {method: "GET", url: shop + "/web@b", want: "GET " + shop + "/web@b"},
		"a new object": {method: "POST", url: shop, body: `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"new@a"}}`,
			want: "POST " + shop, wantBody: `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"new"}}`},
		"a new object by annotation": {method: "POST", url: shop, body: fmt.Sprintf(annotated, "a"),
			want: "POST " + shop, wantBody: `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"new"}}`},
		"a new object of another":                                 {method: "POST", url: shop, body: fmt.Sprintf(annotated, "b"), code: 404, want: `no cluster "b"`},
		"an object of the cluster's, which says it is of another": {method: "PUT", url: shop + "/new", body: fmt.Sprintf(annotated, "b"), want: "PUT " + shop + "/new", wantBody: fmt.Sprintf(annotated, "b")},
		"an object of another view": {method: "PUT", url: shop + "/web@a", body: `{"metadata":{"name":"web@a","resourceVersion":"` + ofView + `"}}`,
			want: "PUT " + shop + "/web", wantBody: `{"metadata":{"name":"web","resourceVersion":"101"}}`},
		"its own version": {method: "PUT", url: shop + "/web", body: `{"metadata":{"name":"web@a","resourceVersion":"101"}}`,
			want: "PUT " + shop + "/web", wantBody: `{"metadata":{"name":"web","resourceVersion":"101"}}`},
		"a former watch":         {method: "GET", url: "/api/v1/watch/pods?a=1", want: "GET /api/v1/watch/pods?a=1"},
		"exec":                   {method: "POST", url: shop + "/web@a/exec?command=a%40a", body: "x@a", want: "POST " + shop + "/web/exec?command=a%40a", wantBody: "x@a"},
		"a list from a view":     {method: "GET", url: shop + "?resourceVersion=" + ofView, code: 410, want: "list again"},
		"a watch from a view":    {method: "GET", url: shop + "?watch=1&resourceVersion=" + ofView, code: 410, want: "list again"},
		"a version of a cluster": {method: "GET", url: shop + "?watch=1&resourceVersion=101", want: "GET " + shop + "?watch=1&resourceVersion=101"},
	} {
		a := newCluster("a", shop+"/web")
		view := singleView(a)
		var got, gotBody string
		view.Relay = func(_ http.ResponseWriter, r *http.Request, to fleet.Member) {
			body, err := io.ReadAll(r.Body)
			if err != nil || r.ContentLength != int64(len(body)) {
				t.Errorf("%s: body %q with length %d, %v", name, body, r.ContentLength, err)
			}
			got, gotBody = r.Method+" "+r.URL.RequestURI(), string(body)
		}
		answer := New(Options{}).request(t, view, test.method, test.url, test.body, "Content-Type", fleet.JSONType)
		if test.code != 0 {
			if answer.code != test.code || !strings.Contains(answer.status.Message, test.want) || got != "" {
				t.Errorf("%s: got %d %q, and %q sent to the cluster; want %d with %q", name, answer.code, answer.body, got, test.code, test.want)
			}
			continue
		}
		if got != test.want || gotBody != test.wantBody {
			t.Errorf("%s: the cluster got %s with %s, want %s with %s; the answer is %d %s", name, got, gotBody, test.want, test.wantBody, answer.code, answer.body)
		}
	}
}

// TestSingleWithRules has a view of some resources of one cluster.
func TestSingleWithRules(t *testing.T) {
	a := newCluster("a", shop+"/web", "/api/v1/namespaces/other/pods/x", "/api/v1/namespaces/shop/configmaps/c")
	view := singleView(a)
	view.Resources = []fleet.ResourceRule{{Resource: "pods", Namespaces: []string{"shop"}}}
	unlisted := view
	unlisted.UnlistedCluster = "a"
	for name, test := range map[string]struct {
		view fleet.View
		url  string
		want string
	}{
		"its namespace":            {view, shop, "GET " + shop},
		"all namespaces":           {view, "/api/v1/pods?limit=2", "GET " + shop + "?limit=2"},
		"its object":               {view, shop + "/web@a/log?follow=1", "GET " + shop + "/web/log?follow=1"},
		"another namespace":        {view, "/api/v1/namespaces/other/pods/x", ""},
		"another namespace's exec": {view, "/api/v1/namespaces/other/pods/x/exec", ""},
		"another resource":         {view, "/api/v1/namespaces/shop/configmaps/c", ""},
		"a former watch":           {view, "/api/v1/watch/namespaces/other/pods", ""},
		"no resource":              {view, "/metrics", ""},
		"a hidden namespace":       {view, "/api/v1/namespaces/shop/pods/..%2f..%2fother%2fpods%2fx", ""},
		"an empty segment":         {view, "/api/v1//namespaces/other/pods", ""},
		"dots":                     {view, "/api/v1/namespaces/shop/pods/../configmaps", ""},
		"unlisted":                 {unlisted, "/api/v1/namespaces/shop/configmaps/c@a?a=1", "GET /api/v1/namespaces/shop/configmaps/c@a?a=1"},
		"unlisted, listed":         {unlisted, shop, "GET " + shop},
	} {
		got := New(Options{}).request(t, test.view, http.MethodGet, test.url, "")
		var sent string
		for _, asked := range a.asked() {
			sent += asked.method + " " + asked.url
		}
		if sent != test.want || test.want == "" && got.code != http.StatusNotFound && got.code != http.StatusBadRequest {
			t.Errorf("%s: the cluster got %q, want %q; the answer is %d %s", name, sent, test.want, got.code, got.body)
		}
	}
}

// TestSingleWithoutCluster has a cluster that the user may not reach.
func TestSingleWithoutCluster(t *testing.T) {
	none := singleView(newCluster("a"))
	none.Members = testViewOf(nil)
	for _, url := range []string{shop, shop + "/web@a", "/apis", "/healthz", shop + "/web/exec"} {
		if got := New(Options{}).request(t, none, http.MethodGet, url, ""); got.code != http.StatusForbidden {
			t.Errorf("%s without the right: got %d %q, want 403", url, got.code, got.body)
		}
	}
}

// TestVersionsFromSingle goes on in a view of two clusters that was of one: what cannot be
// resumed is listed again. Lists and initial events are (TestNoneOfTheInformersListsIsGone).
func TestVersionsFromSingle(t *testing.T) {
	view := testView(newCluster("a"), newCluster("b"))
	for version, want := range map[string]int{"101": http.StatusGone, "nonsense": http.StatusBadRequest} {
		for _, query := range []string{"?resourceVersionMatch=Exact&resourceVersion=", "?watch=1&resourceVersion="} {
			if got := New(Options{}).request(t, view, http.MethodGet, shop+query+version, ""); got.code != want {
				t.Errorf("%s%s: got %d %q, want %d", query, version, got.code, got.body, want)
			}
		}
	}
}

// TestNewGroups asks for a group that the members have only since they were asked, and for
// one that they do not have.
func TestNewGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const group, document = "/apis/new.example.com", "/openapi/v3/apis/new.example.com/v1"
		for _, path := range []string{group, group + "/v1", document} {
			d, members, view := discovery.NewDiscovery(), twoMembers(aggregatedFormat), discoveryView()
			old := members[0].(*discoveryMember)
			code := func(path string) int { return ask(t, d, view, members, path).StatusCode }
			if got := code(path); got != http.StatusNotFound {
				t.Fatalf("%s: %d before there is such a group, want 404", path, got)
			}
			old.handler = newDiscoveryMember("old", "v1.28.4", aggregatedFormat, testGroup("new.example.com", "v1", "things")).handler
			time.Sleep(discovery.MissingFor + time.Nanosecond)
			if got := code(path); got != http.StatusOK {
				t.Errorf("%s: %d when there is such a group, want 200", path, got)
			}
			asked := old.asked("/apis")
			if got := code(path); got != http.StatusOK || old.asked("/apis") != asked {
				t.Errorf("%s: %d then, and the member was asked again: want 200 from what is known", path, got)
			}
			// A flood of requests for nothing is not passed on to the members.
			time.Sleep(discovery.FreshFor / 2)
			for range 100 {
				if got := code("/apis/nothing.example.com/v1"); got != http.StatusNotFound {
					t.Fatalf("a group that is not there: %d, want 404", got)
				}
			}
			if got := old.asked("/apis"); got != asked+1 {
				t.Errorf("%s: the member was asked %d times for nothing, want once", path, got-asked)
			}
		}
	})
}

// TestSingleDiscovery has rules, so that discovery is the view's: it is as new as the cluster's.
func TestSingleDiscovery(t *testing.T) {
	d, members, view := discovery.NewDiscovery(), twoMembers(aggregatedFormat)[:1], discoveryView()
	view.Single = true
	view.Resources = []fleet.ResourceRule{{Group: "new.example.com", Resource: "*"}}
	old := members[0].(*discoveryMember)
	for _, has := range []bool{false, true, false} {
		groups := []string{"", "new.example.com"}[map[bool]int{true: 1}[has]]
		old.handler = newDiscoveryMember("old", "v1.28.4", aggregatedFormat, testGroup(groups, "v1", "things")).handler
		for _, path := range []string{"/apis", "/openapi/v3", "/openapi/v2"} {
			body, err := io.ReadAll(ask(t, d, view, members, path).Body)
			if err != nil || strings.Contains(string(body), "new.example.com") != has {
				t.Errorf("%s while the cluster has the group (%t): %s, %v", path, has, body, err)
			}
		}
	}
}
