package proxyapi

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/relay"
)

// TestCookiesStayWithTheirCluster has what a cluster or a Service can say of its cookies.
func TestCookiesStayWithTheirCluster(t *testing.T) {
	for name, tc := range map[string]struct{ prefix, cookie, want string }{
		"of the whole host":    {"/c1", "session=x; Path=/; HttpOnly; Secure", "session=x; HttpOnly; Secure; Path=/c1/"},
		"of a Service":         {"/c1/api/v1/namespaces/x/services/http:web:80/proxy-service", "a=b; path=/login", "a=b; Path=/c1/api/v1/namespaces/x/services/http:web:80/proxy-service/login"},
		"without a path":       {"/c1", "a=b", "a=b; Path=/c1/"},
		"of another cluster":   {"/c1", "a=b; Path=/c2", "a=b; Path=/c1/c2"},
		"two paths":            {"/c1", "a=b; Path=/x; PATH = /y ", "a=b; Path=/c1/y"},
		"no path":              {"/c1", "a=b; Path=/x; Path=c2", "a=b; Path=/c1/"},
		"of the domain":        {"", "a=b; Domain=clusters.example; Path=/x; Max-Age=5", "a=b; Max-Age=5; Path=/x"},
		"of the domain, twice": {"/c1", "a=b; domain=.example;Domain = example ;Expires=Thu, 01 Jan 2026 00:00:00 GMT", "a=b;Expires=Thu, 01 Jan 2026 00:00:00 GMT; Path=/c1/"},
		"a value that is none": {"/c1", ";Path=/", "; Path=/c1/"},
	} {
		header := http.Header{"Set-Cookie": {tc.cookie, tc.cookie}}
		relay.ConfineCookies(header, tc.prefix)
		if diff := cmp.Diff([]string{tc.want, tc.want}, header["Set-Cookie"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestCookiesOfClusters has a cluster that sets a cookie at each endpoint.
func TestCookiesOfClusters(t *testing.T) {
	w := start(t, func(o *Options) { o.Domain = "clusters.example" })
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Set-Cookie", "a=b; Domain=example; Path=/")
	}), "cluster1")
	for _, tc := range []struct{ host, path, want string }{
		{"", "/cluster1/version", "a=b; Path=/cluster1/"},
		{"cluster1.clusters.example", "/version", "a=b; Path=/"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = tc.host
		resp, err := w.client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Set-Cookie"); got != tc.want {
			t.Errorf("%s%s: Set-Cookie is %q, want %q", tc.host, tc.path, got, tc.want)
		}
	}
}
