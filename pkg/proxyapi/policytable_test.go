package proxyapi

import (
	"bufio"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// kindsOfRequests are what policies are asked about at each endpoint. Those that are refused have a rule that is not true of them.
var kindsOfRequests = []struct {
	name, method, path, header string
	refused                    bool
}{
	{"a list", "GET", "/api/v1/pods", "", false},
	{"Secrets", "GET", "/api/v1/secrets", "", true},
	{"a Secret", "GET", "/api/v1/namespaces/a/secrets/b", "", true},
	{"a watch", "GET", "/api/v1/secrets?watch=1", "", true},
	{"a watch by the former path", "GET", "/api/v1/watch/secrets", "", true},
	{"HEAD", "HEAD", "/api/v1/secrets", "", true},
	{"an escape", "GET", "/api/v1/%73ecrets", "", true},
	{"an escape of an escape", "GET", "/api/v1/%2573ecrets", "", false}, // it is no secret for a kube-apiserver
	{"creating", "POST", "/api/v1/namespaces/a/pods", "", true},
	{"creating that calls itself reading", "POST", "/api/v1/namespaces/a/pods", "X-HTTP-Method-Override: GET\r\n", true},
	{"a dry run", "POST", "/api/v1/namespaces/a/pods?dryRun=All", "", true},
	{"patching", "PATCH", "/api/v1/namespaces/a/pods/b", "", true},
	{"deleting", "DELETE", "/api/v1/namespaces/a/pods/b", "", true},
	{"deleting all", "DELETE", "/api/v1/namespaces/a/pods", "", true},
	{"evicting", "POST", "/api/v1/namespaces/a/pods/b/eviction", "", true},
	{"logs", "GET", "/api/v1/namespaces/a/pods/b/log", "", false},
	{"exec", "POST", "/api/v1/namespaces/a/pods/b/exec", "", true},
	{"exec by WebSocket", "GET", "/api/v1/namespaces/a/pods/b/exec", upgradeLines, true},
	{"exec that says watch", "GET", "/api/v1/namespaces/a/pods/b/exec?watch=1", upgradeLines, true},
	{"attach", "GET", "/api/v1/namespaces/a/pods/b/attach", upgradeLines, true},
	{"port-forward", "GET", "/api/v1/namespaces/a/pods/b/portforward", upgradeLines, true},
	{"a Service, by the kube-apiserver", "GET", "/api/v1/namespaces/a/services/b/proxy/", "", true},
	{"a node, by the kube-apiserver", "GET", "/api/v1/nodes/n/proxy/run", "", true},
	{"an upgrade of a list", "GET", "/api/v1/pods", upgradeLines, true},
	{"an exposed Service", "GET", "/api/v1/namespaces/ns/services/web/proxy-service/", "", true},
	{"no resource", "GET", "/version", "", false},
	{"a method that HTTP does not have", "SECRETS", "/api/v1/pods", "", true},
	{"kubectl auth can-i", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "", false},
}

const upgradeLines = "Connection: Upgrade\r\nUpgrade: websocket\r\n"

// policedEndpoints are the ways to a cluster, or to a view of it, in the order of the table.
var policedEndpoints = []struct {
	name string
	view bool
	at   func(cluster, path string) (target, host string)
}{
	{"direct", false, func(cluster, path string) (string, string) { return "/" + cluster + path, "x" }},
	{"host", false, func(cluster, path string) (string, string) { return path, cluster + ".clusters.example.org" }},
	{"aggregated", false, func(cluster, path string) (string, string) {
		return scope.ClustersPath + cluster + "/proxy" + path, "x"
	}},
	{"Karmada's", false, func(cluster, path string) (string, string) {
		return karmadasClusters + "/" + cluster + "/proxy" + path, "x"
	}},
	{"view", true, func(_, path string) (string, string) { return "/@both" + path, "x" }},
	{"view, encoded", true, func(_, path string) (string, string) { return "/%40both" + path, "x" }},
	{"view, aggregated", true, func(_, path string) (string, string) { return scope.ViewsPath + "both/proxy" + path, "x" }},
	{"view, Karmada's", true, func(_, path string) (string, string) { return karmadasClusters + "/*/proxy" + path, "x" }},
}

// TestPoliciesAtEveryEndpoint sends requests by each endpoint to clusters that have a rule: one enforces it, so that a request
// of which it is not true does not arrive, and one warns. docs/reference/access-policies.md has the table.
func TestPoliciesAtEveryEndpoint(t *testing.T) {
	w, arrived := policyWorld(t)
	const reads = "request.verb in ['get', 'list', 'watch'] && request.resource != 'secrets' && request.path != '/metrics'"
	w.policies.use(policyOf("production", proxyv1alpha1.ModeEnforce, "cluster.labels['env'] != 'prod' || "+reads), policyOf("trial", proxyv1alpha1.ModeWarn, "cluster.labels['env'] != 'test' || "+reads))
	w.addView("both", "cluster1", "cluster2")
	config := w.client().Transport.(*http.Transport).TLSClientConfig
	table := "| request | policies see |"
	for _, endpoint := range policedEndpoints {
		table += " " + endpoint.name + " |"
	}
	table += "\n|" + strings.Repeat("---|", 2+len(policedEndpoints)) + "\n"
	for _, kind := range kindsOfRequests {
		table += fmt.Sprintf("| %s | %s |", kind.name, seenOf(t, kind.method, kind.path, kind.header))
		for _, endpoint := range policedEndpoints {
			if endpoint.view && (kind.header == upgradeLines || strings.Contains(kind.path, "proxy")) {
				table += " – |" // those name their cluster, see TestPoliciesOfViews
				continue
			}
			ask := func(cluster string) (came int32, code int, body string) {
				before := arrived.Load()
				target, host := endpoint.at(cluster, kind.path)
				code, body = w.sendAs(config, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer hub-token\r\nContent-Length: 0\r\nConnection: close\r\n%s\r\n", kind.method, target, host, kind.header))
				return arrived.Load() - before, code, body
			}
			what := endpoint.name + ", " + kind.name
			came, code, body := ask("cluster1")
			others := int32(0)
			if endpoint.view { // the other cluster gets it anyway
				others = 1
			}
			if refused := came == others; refused != kind.refused || came > others+1 {
				t.Errorf("%s: %d arrived, want it refused: %t (%d %s)", what, came, kind.refused, code, body)
			}
			if kind.refused && kind.method != "HEAD" && (code != 403 && !endpoint.view || !strings.Contains(body, `AccessPolicy \"production\" refuses the request by rule \"r\": ask the owner`)) {
				t.Errorf("%s: %d %s; want 403 with the policy", what, code, body)
			}
			if endpoint.view {
				came -= map[bool]int32{true: 0, false: 1}[kind.refused]
			} else {
				came, code, body = ask("cluster2")
			}
			silent := endpoint.view && kind.method == "HEAD" // this view tells of its clusters in the body
			if warned := strings.Contains(body, "Warning") || silent; came != 1 || warned != kind.refused {
				t.Errorf("%s: %d arrived at the cluster whose policy warns, want it to warn: %t (%d %s)", what, came, kind.refused, code, body)
			}
			table += map[bool]string{true: " 403 |", false: " passes |"}[kind.refused]
		}
		table += "\n"
	}
	for path, refused := range map[string]bool{scope.ClustersPath + "cluster1/metrics": true, scope.ClustersPath + "cluster2/metrics": false} {
		before := arrived.Load()
		if resp, body := w.ask(http.MethodGet, path, "hub-token"); (resp.StatusCode == 403) != refused || (arrived.Load() == before) != refused {
			t.Errorf("%s: %d %s, want it refused: %t", path, resp.StatusCode, body, refused)
		}
	}
	if got := testutil.ToFloat64(w.server.metrics.PolicyObjections.WithLabelValues("production", "refused", "rule")); got < 50 {
		t.Errorf("%v objections were counted", got)
	}
	inPage(t, "../../docs/reference/access-policies.md", table)
}

// seenOf is what policies see of a request.
func seenOf(t *testing.T, method, path, header string) string {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " /cluster1" + path + " HTTP/1.1\r\nHost: x\r\n" + header + "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	rs, err := scope.Endpoints{}.NewScope(r)
	if err != nil {
		t.Fatal(err)
	}
	asked := rs.PolicyRequest()
	seen := []string{asked.Verb}
	if of := strings.TrimSuffix(asked.Resource+"/"+asked.Subresource, "/"); of != "" {
		seen = append(seen, "`"+of+"`")
	}
	for word, is := range map[string]bool{"upgrade": asked.Upgrade, "dryRun": asked.DryRun} {
		if is {
			seen = append(seen, word)
		}
	}
	if asked.Service != "" {
		seen = append(seen, "service `"+asked.Service+"`")
	}
	return strings.Join(seen, ", ")
}

var update = flag.Bool("update", false, "write what a page has of tests, in place of checking it")

// inPage wants a page to end with what was made here.
func inPage(t *testing.T, page, made string) {
	t.Helper()
	const mark = "<!-- Made of the code from here on: hack/update-texts.sh -->\n"
	content, err := os.ReadFile(page)
	text, is, found := strings.Cut(string(content), mark)
	switch {
	case err != nil || !found:
		t.Errorf("%s has no mark %s: %v", page, mark, err)
	case is == "\n"+made:
	case !*update:
		t.Errorf("%s is not what the code says; run: hack/update-texts.sh\ngot\n%s\nwant\n%s", page, is, made)
	default:
		if err := os.WriteFile(page, []byte(text+mark+"\n"+made), 0o644); err != nil {
			t.Error(err)
		}
	}
}
