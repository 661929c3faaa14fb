package route

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		target string
		want   Target
		code   int
	}{
		{target: "/cluster1/api/v1/pods", want: Target{Cluster: "cluster1", Path: "/api/v1/pods", Query: ""}},
		{target: "/cluster1", want: Target{Cluster: "cluster1", Path: "/", Query: ""}},
		{target: "/cluster1/", want: Target{Cluster: "cluster1", Path: "/", Query: ""}},
		{target: "/cluster1?x=/a/b", want: Target{Cluster: "cluster1", Path: "/", Query: "?x=/a/b"}},
		{target: "/cluster1/?", want: Target{Cluster: "cluster1", Path: "/", Query: "?"}},
		{target: "/42/version", want: Target{Cluster: "42", Path: "/version", Query: ""}},
		{target: "/a.b-c/version", want: Target{Cluster: "a.b-c", Path: "/version", Query: ""}},
		{target: "/c/api/v1/namespaces/n/configmaps/a%2Fb", want: Target{Cluster: "c", Path: "/api/v1/namespaces/n/configmaps/a%2Fb", Query: ""}},
		{target: "/c/x%20y//z%252e%252e/?a=b/../c?d", want: Target{Cluster: "c", Path: "/x%20y//z%252e%252e/", Query: "?a=b/../c?d"}},
		{target: "/c//c2/x", want: Target{Cluster: "c", Path: "//c2/x", Query: ""}},
		{target: "/c/...", want: Target{Cluster: "c", Path: "/...", Query: ""}},
		{target: "/@all/api/v1/pods?x=/y", want: Target{View: "all", Path: "/api/v1/pods", Query: "?x=/y"}},
		{target: "/%40all/api/v1/pods", want: Target{View: "all", Path: "/api/v1/pods"}},
		{target: "/@all", want: Target{View: "all", Path: "/"}},
		{target: "/@all?", want: Target{View: "all", Path: "/", Query: "?"}},
		{target: "/@a.b-c//x/", want: Target{View: "a.b-c", Path: "//x/"}},
		{target: "/@all/api/v1/namespaces/n/pods/a%2Fb%40c/log", want: Target{View: "all", Path: "/api/v1/namespaces/n/pods/a%2Fb%40c/log"}},
		{target: "/@all/api/v1/namespaces/n/services/s@c/proxy/x", want: Target{View: "all", Path: "/api/v1/namespaces/n/services/s@c/proxy/x"}},
		{target: "/@all/api/v1/namespaces/n/services/s:80/proxy-service/x", code: http.StatusNotFound},
		{target: "/@/api", code: http.StatusNotFound},
		{target: "/@@all/api", code: http.StatusNotFound},
		{target: "/%2540all/api", code: http.StatusNotFound},
		{target: "/@All/api", code: http.StatusNotFound},
		{target: "/@al%6c/api", code: http.StatusNotFound},
		{target: "/@../api", code: http.StatusNotFound},
		{target: "/@%2e%2e/api", code: http.StatusNotFound},
		{target: "/all@/api", code: http.StatusNotFound},
		{target: "/@all/../x", code: http.StatusBadRequest},
		{target: "/@all/%2e%2E/x", code: http.StatusBadRequest},
		{target: "/@all/a%2f..%2fb", code: http.StatusBadRequest},
		{target: "", code: http.StatusBadRequest},
		{target: "*", code: http.StatusBadRequest},
		{target: "https://h/c/x", code: http.StatusBadRequest},
		{target: "/", code: http.StatusNotFound},
		{target: "//c/x", code: http.StatusNotFound},
		{target: "/Cluster1/x", code: http.StatusNotFound},
		{target: "/cluster%31/x", code: http.StatusNotFound},
		{target: "/../x", code: http.StatusNotFound},
		{target: "/%2e%2e/x", code: http.StatusNotFound},
		{target: "/" + strings.Repeat("a", 254), code: http.StatusNotFound},
		{target: "/c/..", code: http.StatusBadRequest},
		{target: "/c/../d/x", code: http.StatusBadRequest},
		{target: "/c/%2e%2E/x", code: http.StatusBadRequest},
		{target: "/c/.%2e/x", code: http.StatusBadRequest},
		{target: "/c/a%2f..%2fb", code: http.StatusBadRequest},
		{target: "/c/./x", code: http.StatusBadRequest},
		{target: "/c/%zz", code: http.StatusBadRequest},
		{target: "/c/a b", code: http.StatusBadRequest},
		{target: "/c/a\x00", code: http.StatusBadRequest},
		{target: "/c/\\x", code: http.StatusBadRequest},
		{target: "/c/é", code: http.StatusBadRequest},
		{target: "/c/x#y", code: http.StatusBadRequest},
		{target: "/c/x?a#y", code: http.StatusBadRequest},
		{target: "/c/x?a\r\ny", code: http.StatusBadRequest},
	} {
		t.Run(tc.target, func(t *testing.T) {
			got, err := Parse(tc.target)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Parse (-want +got):\n%s", diff)
			}
			var refused *Error
			if errors.As(err, &refused); tc.code == 0 && err != nil || tc.code != 0 && (refused == nil || refused.Code != tc.code) {
				t.Errorf("error %v, want code %d", err, tc.code)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, target := range []string{"/cluster1/api/v1/pods?x=/y", "/c//", "/c/a%2Fb", "/c?", "/c/%2e.", "/1.b/[::]@:;=", "/@all/api?x", "/%40a.b//c"} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		parsed, err := Parse(target)
		if err != nil {
			return
		}
		again, err := Parse(parsed.String())
		if err != nil || again != parsed {
			t.Fatalf("Parse(%q) = %+v, and back: %+v, %v", target, parsed, again, err)
		}
		if (parsed.Cluster == "") == (parsed.View == "") {
			t.Fatalf("%q is %+v, want a cluster or a view", target, parsed)
		}
		// Only the slash that may be left out after the cluster is added.
		first := parsed.Cluster
		if parsed.View != "" {
			first = "@" + parsed.View
			if rest, ok := strings.CutPrefix(target, "/%40"); ok {
				target = "/@" + rest
			}
		}
		if s := parsed.String(); !parsed.ForService() && s != target && s != strings.Replace(target, "/"+first, "/"+first+"/", 1) {
			t.Fatalf("%q became %q", target, s)
		}
		u := &url.URL{Scheme: "https", Host: "agent:7443"}
		if err := parsed.Apply(u); err != nil {
			t.Fatal(err)
		}
		if got := u.RequestURI(); got != parsed.Path+parsed.Query {
			t.Fatalf("request line of %q would be %q", target, got)
		}
	})
}

// viewCase is a target below an endpoint of views, and what it leads to.
type viewCase struct {
	target string
	want   Target
	ok     bool
	code   int
}

func (tc viewCase) check(t *testing.T, parse func(target string) (Target, bool, error)) {
	t.Run(tc.target, func(t *testing.T) {
		got, ok, err := parse(tc.target)
		if diff := cmp.Diff(tc.want, got); diff != "" || ok != tc.ok {
			t.Errorf("leads to a view: %t, want %t (-want +got):\n%s", ok, tc.ok, diff)
		}
		var refused *Error
		if errors.As(err, &refused); tc.code == 0 && err != nil || tc.code != 0 && (refused == nil || refused.Code != tc.code) {
			t.Errorf("error %v, want code %d", err, tc.code)
		}
	})
}

func TestParseViewBelow(t *testing.T) {
	const prefix = "/apis/g/v1/fleetviews/"
	for _, tc := range []viewCase{
		{target: prefix + "all/proxy/api/v1/pods?a=/b", ok: true, want: Target{View: "all", Path: "/api/v1/pods", Query: "?a=/b"}},
		{target: prefix + "all/proxy", ok: true, want: Target{View: "all", Path: "/"}},
		{target: prefix + "all/proxy//x%2Fy/", ok: true, want: Target{View: "all", Path: "//x%2Fy/"}},
		{target: prefix + "all/proxy/../x", ok: true, code: http.StatusBadRequest},
		{target: prefix + "All/proxy/x", ok: true, code: http.StatusNotFound},
		{target: prefix + "@all/proxy/x", ok: true, code: http.StatusNotFound},
		{target: prefix + "all"},
		{target: prefix + "all/status"},
		{target: prefix + "all%2fproxy/x"},
		{target: prefix + "all/%70roxy/x"},
		{target: "/apis/g/v1/clusters/all/proxy/x"},
	} {
		tc.check(t, func(target string) (Target, bool, error) { return ParseViewBelow(prefix, "proxy", target) })
	}
}

func TestParseViewAt(t *testing.T) {
	const endpoint = "/apis/g/v1/proxying/karmada/proxy"
	for _, tc := range []viewCase{
		{target: endpoint + "/api/v1/pods?a=/b", ok: true, want: Target{View: "v", Path: "/api/v1/pods", Query: "?a=/b"}},
		{target: endpoint, ok: true, want: Target{View: "v", Path: "/"}},
		{target: endpoint + "?", ok: true, want: Target{View: "v", Path: "/", Query: "?"}},
		{target: endpoint + "//x%2Fy/", ok: true, want: Target{View: "v", Path: "//x%2Fy/"}},
		{target: endpoint + "/../x", ok: true, code: http.StatusBadRequest},
		{target: endpoint + "/%2e%2e/x", ok: true, code: http.StatusBadRequest},
		{target: endpoint + "/api/v1/namespaces/n/services/s:80/proxy-service/x", ok: true, code: http.StatusNotFound},
		{target: endpoint + "x"},
		{target: endpoint + "%2fx"},
		{target: "/apis/g/v1/proxying/other/proxy/x"},
	} {
		tc.check(t, func(target string) (Target, bool, error) { return ParseViewAt(endpoint, "v", target) })
	}
}
