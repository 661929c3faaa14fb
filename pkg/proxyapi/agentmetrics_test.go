package proxyapi

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// toldAsMetrics are the headers that make a request one for the agent's metrics.
func toldAsMetrics() http.Header {
	header := http.Header{}
	agentapi.SetAgentMetrics(header)
	return header
}

// TestAgentMetrics asks for the metrics of agents with and without the right to them.
func TestAgentMetrics(t *testing.T) {
	w := start(t)
	w.api.User("prometheus", "prometheus")
	w.api.User("of-the-set", "sets")
	w.api.User("user", "jane", "devs")
	w.api.User("nobody", "system:anonymous", "system:unauthenticated")
	w.api.Allow("prometheus get clusters/metrics cluster1", "prometheus get clusters/metrics away", "sets get clustersets/metrics pair",
		"devs * clusters/proxy *", "devs * clusters/stream *", "devs list clusters/metrics *", "system:unauthenticated * clusters/metrics *")
	seen := make(chan *http.Request, 1)
	w.agent("cluster1", keeping(seen), "cluster1")
	client := w.client("http/1.1")
	const metrics = "cluster1/metrics"
	for _, tc := range []struct {
		name, token, method, path string
		header                    http.Header
		code                      int
		message                   string
	}{
		{name: "with the right", token: "prometheus", path: metrics, code: 200},
		{name: "with the right, and a query", token: "prometheus", path: metrics + "?name[]=up", code: 200},
		{name: "with claims of the caller's own", token: "prometheus", path: metrics, header: http.Header{"Cluster-Proxy-Service": {"a"}, "cluster_proxy_agent": {"b"}, "Cluster-Proxy-Authorization": {"Basic x"}}, code: 200},
		{name: "with the right to a set", token: "of-the-set", path: metrics, code: 200},
		{name: "with all rights to the cluster's API", token: "user", path: metrics, code: 403, message: "bind a role such as ClusterRole cluster-proxy-metrics-reader"},
		{name: "of another cluster", token: "prometheus", path: "cluster2/metrics", code: 403, message: "clusters/metrics"},
		{name: "the cluster's API", token: "prometheus", path: "cluster1/proxy/metrics", code: 403, message: "clusters/proxy"},
		{name: "of a cluster that is away", token: "prometheus", path: "away/metrics", code: 503, message: "no agent of cluster"},
		{name: "without a credential", path: metrics, code: 401, message: "does not know who you are"},
		{name: "with a token of the cluster", token: "managed", path: metrics, code: 401, message: "does not know who you are"},
		{name: "as nobody", token: "nobody", path: metrics, code: 401, message: "does not know who you are"},
		{name: "something below", token: "prometheus", path: metrics + "/api/v1/secrets", code: 404, message: "nothing is below"},
		{name: "a Service below", token: "prometheus", path: metrics + "/api/v1/namespaces/a/services/b/proxy-service/", code: 404, message: "nothing is below"},
		{name: "with an escape", token: "prometheus", path: "cluster1/%6detrics", code: 400},
		{name: "by POST", token: "prometheus", method: http.MethodPost, path: metrics, code: 405, message: "use GET"},
		{name: "with an upgrade", token: "prometheus", path: metrics, header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, code: 405, message: "use GET"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), tc.method, w.url+scope.ClustersPath+tc.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			maps.Copy(r.Header, tc.header)
			if tc.token != "" {
				r.Header.Set("Authorization", "Bearer "+tc.token)
			}
			code, body := answerTo(t, client, r)
			if code != tc.code || !strings.Contains(body, tc.message) {
				t.Errorf("answered %d %s, want %d with %q", code, body, tc.code, tc.message)
			}
			select {
			case got := <-seen:
				if tc.code != http.StatusOK {
					t.Fatalf("the agent got %s %s", got.Method, got.RequestURI)
				}
				told := identityHeaders(got)
				maps.DeleteFunc(told, func(name string, _ []string) bool { return strings.HasPrefix(name, "X-Remote-") })
				if diff := cmp.Diff(map[string][]string(toldAsMetrics()), told); diff != "" || got.RequestURI != "/metrics" || got.Header.Get("X-Remote-User") == "" {
					t.Errorf("the agent got %s as %q, want /metrics as a user (-want +got):\n%s", got.RequestURI, got.Header.Get("X-Remote-User"), diff)
				}
			default:
				if tc.code == http.StatusOK {
					t.Error("the agent was not asked")
				}
			}
		})
	}
}

func answerTo(t *testing.T, client *http.Client, r *http.Request) (code int, body string) {
	t.Helper()
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// TestAgentMetricsOfEvilAgents: an agent must not send the hub's Prometheus elsewhere.
func TestAgentMetricsOfEvilAgents(t *testing.T) {
	w := start(t)
	w.api.User("prometheus", "prometheus")
	w.api.Allow("prometheus get clusters/metrics *")
	for i, location := range []string{"/", "metrics", "/api/v1/secrets", "https://evil.example/metrics"} {
		cluster := fmt.Sprint("cluster", 1+i%2)
		w.agent(cluster, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", location)
			rw.WriteHeader(http.StatusFound)
		}), cluster)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+scope.ClustersPath+cluster+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer prometheus")
		if code, body := answerTo(t, w.client(), r); code != http.StatusBadGateway {
			t.Errorf("redirect to %s: answered %d %s, want 502", location, code, body)
		}
	}
}

// TestAgentMetricsAreAudited wants a scrape to be audited and counted as what it is: it is no
// user's request to the kube-apiserver.
func TestAgentMetricsAreAudited(t *testing.T) {
	w, events := audited(t)
	w.api.User("prometheus", "prometheus")
	w.api.Allow("prometheus get clusters/metrics *")
	w.agent("cluster1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "cluster1")
	get(t, w.client(), w.url+scope.ClustersPath+"cluster1/metrics", http.Header{"Authorization": {"Bearer prometheus"}})
	if n := testutil.ToFloat64(w.server.metrics.Requests.WithLabelValues("cluster1", "metrics", "200")); n != 1 {
		t.Errorf("%v scrapes are counted, want 1", n)
	}
	for _, e := range events() {
		if e.ObjectRef != nil && e.ObjectRef.Subresource == "metrics" && e.ObjectRef.Name == "cluster1" && e.Verb == "get" && e.User.Username == "prometheus" &&
			e.Annotations[scope.AnnotationPrefix+"request"] == "GET /metrics of the agent" {
			return
		}
	}
	t.Error("there is no event of the request")
}
