package proxyapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const ofServices = "/api/v1/namespaces/ns/services/"

// loginWorld is a proxy API for two clusters with Services on different terms.
func loginWorld(t *testing.T) (*world, chan *http.Request) {
	t.Helper()
	w := start(t, func(o *Options) { o.AllowAnonymous = false })
	w.api.User("hub-token", "jane")
	w.api.User("other-token", "joe")
	w.api.Allow("jane * clusters/proxy cluster1", "jane create clusters/stream cluster1", "jane * clusters/proxy cluster2", "jane create clusters/stream cluster2")
	w.api.Errors["expired"] = "[invalid bearer token, service account token has expired]"
	w.api.Errors["undecided"] = `[invalid bearer token, Post "https://webhook": context deadline exceeded]`
	w.api.SetExposed(map[string]string{"services": `
- {namespace: ns, service: grafana, forwardAuthorization: true}
- {namespace: ns, service: plain}
- {namespace: ns, service: of-two, clusters: [cluster2]}
- {namespace: ns, service: of-set, clusterSets: [set-of-cluster1]}
- {namespace: ns, service: open, clusters: [cluster1, nowhere], anonymous: true}
`})
	seen := make(chan *http.Request, 1)
	w.agent("cluster1", keeping(seen), "cluster1")
	w.agent("cluster2", keeping(seen), "cluster2")
	client := w.client()
	eventually(t, func() bool {
		resp, _ := get(t, client, w.url+"/cluster1"+ofServices+"plain/proxy-service/", http.Header{"Authorization": {"Bearer hub-token"}})
		if resp.StatusCode == 200 {
			<-seen
		}
		return resp.StatusCode == 200
	})
	return w, seen
}

// TestLoginsOfServices sends what a Service asks its own users for. A credential
// of the hub must not be among what leaves it.
func TestLoginsOfServices(t *testing.T) {
	w, seen := loginWorld(t)
	client := w.client("http/1.1")
	const grafana, plain = ofServices + "grafana/proxy-service/", ofServices + "plain/proxy-service/"
	for name, test := range map[string]struct {
		path  string
		token string // in Authorization
		login http.Header
		code  int
		want  []string // Authorization and login, as the agent sees them
	}{
		"a password":                         {grafana, "hub-token", http.Header{"Cluster-Proxy-Authorization": {"Basic YTpi"}}, 200, []string{"", "Basic YTpi"}},
		"a token of the Service's":           {grafana, "hub-token", http.Header{"Cluster-Proxy-Authorization": {"Bearer of-grafana"}}, 200, []string{"", "Bearer of-grafana"}},
		"of a caller whom the hub knows not": {grafana, "managed", http.Header{"Cluster-Proxy-Authorization": {"Basic YTpi"}}, 200, []string{"Bearer managed", "Basic YTpi"}},
		"none":                               {grafana, "hub-token", nil, 200, []string{"", ""}},
		"one's own token of the hub":         {grafana, "hub-token", http.Header{"Cluster-Proxy-Authorization": {"Bearer hub-token"}}, 403, nil},
		"somebody else's token of the hub":   {grafana, "hub-token", http.Header{"Cluster-Proxy-Authorization": {"bearer other-token"}}, 403, nil},
		"an expired token of the hub":        {grafana, "hub-token", http.Header{"Cluster-Proxy-Authorization": {"Bearer expired"}}, 401, nil},
		"a token that is not decided":        {grafana, "hub-token", http.Header{"Cluster-Proxy-Authorization": {"Bearer undecided"}}, 503, nil},
		"a bootstrap token":                  {grafana, "hub-token", http.Header{"Cluster-Proxy-Authorization": {"Bearer abcdef.0123456789abcdef"}}, 401, nil},
		"two blanks":                         {grafana, "hub-token", http.Header{"Cluster-Proxy-Authorization": {"Bearer  other-token"}}, 400, nil},
		"a tab":                              {grafana, "hub-token", http.Header{"Cluster-Proxy-Authorization": {"Bearer\tother-token"}}, 400, nil},
		"a scheme that looks like Bearer":    {grafana, "hub-token", http.Header{"Cluster-Proxy-Authorization": {"Bearers other-token"}}, 400, nil},
		"two headers":                        {grafana, "hub-token", http.Header{"Cluster-Proxy-Authorization": {"Basic YTpi", "Basic YTpj"}}, 400, nil},
		"underscores":                        {grafana, "hub-token", http.Header{"cluster_proxy_authorization": {"Bearer hub-token"}}, 200, []string{"", ""}},
		"of a Service that asks for none":    {plain, "hub-token", http.Header{"Cluster-Proxy-Authorization": {"Basic YTpi"}}, 403, nil},
		"of the kube-apiserver":              {"/version", "hub-token", http.Header{"Cluster-Proxy-Authorization": {"Bearer hub-token"}}, 200, []string{"", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			header := test.login.Clone()
			if header == nil {
				header = http.Header{}
			}
			header.Set("Authorization", "Bearer "+test.token)
			resp, body := get(t, client, w.url+"/cluster1"+test.path, header)
			if resp.StatusCode != test.code {
				t.Fatalf("%d %s, want %d", resp.StatusCode, body, test.code)
			}
			if strings.Contains(body, "-token\"") || strings.Contains(body, "YTpi") {
				t.Errorf("the answer has the credential: %s", body)
			}
			if test.want == nil {
				if len(seen) > 0 {
					t.Errorf("the agent sees %v", (<-seen).Header)
				}
				return
			}
			r := <-seen
			if diff := cmp.Diff(test.want, []string{r.Header.Get("Authorization"), r.Header.Get("Cluster-Proxy-Authorization")}); diff != "" {
				t.Errorf("Authorization and login (-want +got):\n%s", diff)
			}
		})
	}
}

// TestServicesOfSomeClusters asks for Services that are listed for a cluster or a
// set, and for one that needs no credential.
func TestServicesOfSomeClusters(t *testing.T) {
	w, seen := loginWorld(t)
	client := w.client("http/1.1")
	jane := http.Header{"Authorization": {"Bearer hub-token"}}
	unknown, without := "", http.Header{}
	for _, test := range []struct {
		cluster, service string
		header           http.Header
		code             int
	}{
		{"cluster1", "of-two", jane, 403}, {"cluster2", "of-two", jane, 200},
		{"cluster1", "of-set", jane, 200}, {"cluster2", "of-set", jane, 403},
		{"cluster1", "open", without, 200}, {"cluster1", "open", jane, 200}, {"cluster2", "open", jane, 403},
		// Without a credential, what is not open looks all the same.
		{"cluster2", "open", without, 401}, {"cluster1", "plain", without, 401}, {"nowhere", "open", without, 401}, {"nowhere", "plain", without, 401}, {"away", "open", without, 401},
	} {
		resp, body := get(t, client, w.url+"/"+test.cluster+ofServices+test.service+"/proxy-service/", test.header.Clone())
		if resp.StatusCode != test.code {
			t.Errorf("%s of %s with %v: %d %s, want %d", test.service, test.cluster, test.header, resp.StatusCode, body, test.code)
		}
		if resp.StatusCode == 200 {
			<-seen
		}
		if resp.StatusCode == 401 {
			if unknown == "" {
				unknown = body
			}
			if body != unknown {
				t.Errorf("%s of %s: %s, want the answer for others: %s", test.service, test.cluster, body, unknown)
			}
		}
	}
}
