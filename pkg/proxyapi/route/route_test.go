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
	for _, target := range []string{"/cluster1/api/v1/pods?x=/y", "/c//", "/c/a%2Fb", "/c?", "/c/%2e.", "/1.b/[::]@:;="} {
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
		// Only the slash that may be left out after the cluster is added.
		if s := parsed.String(); !parsed.ForService() && s != target && s != strings.Replace(target, "/"+parsed.Cluster, "/"+parsed.Cluster+"/", 1) {
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
