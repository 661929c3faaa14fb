package proxyapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// roundTrips counts requests, and sends them to a host of its own if there is one.
type roundTrips struct {
	http.RoundTripper
	host  string
	count int
	last  *http.Response
}

func (r *roundTrips) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	r.count++
	if r.host != "" {
		req = req.Clone(req.Context())
		req.Host = r.host
	}
	r.last, err = r.RoundTripper.RoundTrip(req)
	return r.last, err
}

// heard are the Warnings that a client of client-go is given.
type heard []string

func (h *heard) HandleWarningHeader(_ int, _, text string) { *h = append(*h, text) }

// TestAwayIsSaidAtOnce has client-go's discovery ask for clusters without an agent, and for
// one whose agent has just gone. Discovery throws the Status away.
func TestAwayIsSaidAtOnce(t *testing.T) {
	w := start(t, func(o *Options) { o.Domain, o.KarmadaAPI = "clusters.example.org", true })
	w.api.User("hub-token", "jane")
	w.api.Allow("jane * clusters/proxy *", "jane * clusters.cluster.karmada.io/proxy *", "jane get fleetviews single", "jane get fleetviews both")
	w.addView("single", "cluster2")
	w.addView("both", "away", "cluster2")
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("{}")) }), "cluster1")
	for name, test := range map[string]struct{ prefix, host, cluster string }{
		"direct":                       {"/away", "", "away"},
		"direct, not known to the hub": {"/cluster2", "", "cluster2"},
		"host":                         {"", "away.clusters.example.org", "away"},
		"aggregated":                   {scope.ClustersPath + "away/proxy", "", "away"},
		"Karmada's":                    {scope.KarmadaClustersPath + "away/proxy", "", "away"},
		"a view of one cluster":        {scope.ViewsPath + "single/proxy", "", "cluster2"},
		"a view":                       {scope.ViewsPath + "both/proxy", "", "away"},
		"a view, direct":               {"/@both", "", "cluster2"},
	} {
		var warnings heard
		requests := &roundTrips{RoundTripper: w.client().Transport, host: test.host}
		client, err := discovery.NewDiscoveryClientForConfigAndClient(&rest.Config{Host: w.url + test.prefix, BearerToken: "hub-token", WarningHandler: &warnings},
			&http.Client{Transport: bearer{requests}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.ServerVersion()
		if err == nil || requests.last.StatusCode != http.StatusServiceUnavailable || requests.last.Header.Get("Retry-After") != "" {
			t.Errorf("%s: %v, answered %d, Retry-After %q; want 503 without", name, err, requests.last.StatusCode, requests.last.Header.Get("Retry-After"))
		}
		if requests.count != 1 {
			t.Errorf("%s: client-go sent %d requests, want one", name, requests.count)
		}
		if len(warnings) != 1 || !strings.Contains(warnings[0], `no agent of cluster "`+test.cluster+`" is connected`) {
			t.Errorf("%s: the user is warned %q, want of the cluster once", name, warnings)
		}
	}
	client, header := w.client(), http.Header{"Authorization": {"Bearer hub-token"}}
	if resp, body := get(t, client, w.url+"/cluster1/version", header); resp.StatusCode != http.StatusOK {
		t.Fatalf("answered %d %s, want 200", resp.StatusCode, body)
	}
	w.hub.Disconnect(w.handlerAddress("cluster1"))
	eventually(t, func() bool {
		resp, _ := get(t, client, w.url+"/cluster1/version", header)
		return resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "1"
	})
}

// bearer sends the hub's token.
type bearer struct{ next http.RoundTripper }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer hub-token")
	return b.next.RoundTrip(r)
}

// TestRefusalsWarn wants the reason of a refusal in a Warning where clients throw the Status
// away, and there alone: kubectl would show it twice.
func TestRefusalsWarn(t *testing.T) {
	w := start(t, func(o *Options) { o.AllowAnonymous = false })
	hostile := "eve\"\\\r\nX-Evil: 1\x1b[31m\u0085\xff" + strings.Repeat("é", 4000)
	w.api.User("hub-token", "jane")
	w.api.User("hostile", hostile)
	w.api.User("nobody", "nobody")
	w.api.Allow("jane * clusters/proxy *")
	client := w.client("http/1.1")
	for name, test := range map[string]struct {
		path, token string
		code        int
		says        string
		none        bool
	}{
		"no such cluster":         {path: "/nowhere/apis", token: "hub-token", code: 404, says: "nowhere"},
		"no right":                {path: "/cluster1/apis", token: "nobody", code: 403, says: "cluster-proxy-user"},
		"no right, aggregated":    {path: scope.ClustersPath + "cluster1/proxy/openapi/v3", token: "nobody", code: 403, says: "cluster-proxy-user"},
		"a hostile name":          {path: "/cluster1/apis", token: "hostile", code: 403, says: `User "eve`},
		"no credential":           {path: "/cluster1/api", code: 401, says: "send a token of the hub"},
		"a token of nobody":       {path: "/away/api", token: "bad", code: 401, says: "send a token of the hub"},
		"no path":                 {path: "/", token: "hub-token", code: 404, says: "/<cluster>/<Kubernetes path>"},
		"no such cluster, a list": {path: "/nowhere/api/v1/pods", token: "hub-token", code: 404, none: true},
		"no right, a watch":       {path: "/cluster1/api/v1/pods?watch=1", token: "nobody", code: 403, none: true},
		"no agent, an object":     {path: "/away/api/v1/namespaces/a/pods/b", token: "hub-token", code: 503, none: true},
	} {
		header := http.Header{}
		if test.token != "" {
			header.Set("Authorization", "Bearer "+test.token)
		}
		resp, body := get(t, client, w.url+test.path, header)
		var status metav1.Status
		if err := json.Unmarshal([]byte(body), &status); err != nil || resp.StatusCode != test.code {
			t.Errorf("%s: %d %.300s, want %d and a Status", name, resp.StatusCode, body, test.code)
			continue
		}
		lines := resp.Header["Warning"]
		if test.none {
			if len(lines) > 0 {
				t.Errorf("%s: Warning %q beside the Status, want none", name, lines)
			}
			continue
		}
		warnings, errs := utilnet.ParseWarningHeaders(lines)
		if len(errs) > 0 || len(warnings) != 1 || warnings[0].Code != 299 || len(warnings[0].Text) > fault.MaxWarning+len("...") || resp.Header.Get("X-Evil") != "" {
			t.Errorf("%s: Warning %.300q, %v, want one with code 299 and at most %d bytes", name, lines, errs, fault.MaxWarning)
			continue
		}
		if !strings.Contains(warnings[0].Text, test.says) || len(status.Message) < fault.MaxWarning && warnings[0].Text != status.Message {
			t.Errorf("%s: Warning %q of Status %q, want %q in both", name, warnings[0].Text, status.Message, test.says)
		}
	}
}

// TestProxyServersThatAreGone wants clients to come back while a proxy server restarts, and
// not while there has been none for longer.
func TestProxyServersThatAreGone(t *testing.T) {
	w := start(t, func(o *Options) { o.ProxyServer = "127.0.0.1:1" })
	w.api.User("hub-token", "jane")
	w.api.Allow("jane * clusters/proxy *")
	<-w.server.prober.probed
	client, header := w.client("h2"), http.Header{"Authorization": {"Bearer hub-token"}}
	for _, test := range []struct {
		gone time.Duration
		want string
	}{{0, "1"}, {time.Minute, ""}} {
		w.server.prober.failing.Store(time.Now().Add(-test.gone).UnixNano())
		resp, body := get(t, client, w.url+"/cluster1/version", header)
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != test.want || !strings.Contains(resp.Header.Get("Warning"), "proxy server") {
			t.Errorf("gone for %s: %d %s, Retry-After %q, Warning %q; want 503, %q and the proxy server in the Warning", test.gone, resp.StatusCode, body, resp.Header.Get("Retry-After"), resp.Header.Get("Warning"), test.want)
		}
	}
}
