package proxyapi

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// targetGroups is what Prometheus' http_sd reads.
type targetGroups []struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

var targetsPath = scope.ClustersPath + "-/targets"

// TestTargets asks for what a Prometheus may scrape, as users with various rights.
func TestTargets(t *testing.T) {
	w := start(t)
	w.api.SetExposed(map[string]string{"services": `
- {namespace: monitoring, service: prometheus, port: 9090, protocol: http}
- {namespace: monitoring, service: prometheus, port: 9090, protocol: http, forwardAuthorization: true}
- {namespace: shop, service: web, port: https, protocol: https, clusters: [cluster2]}
- {namespace: shop, service: cart, port: 8443, protocol: https, clusterSets: [set-of-cluster1]}
- {namespace: shop, service: postgres, port: 5432, protocol: tcp}
- {namespace: shop, service: any-port, protocol: http}
- {namespace: shop, service: any-protocol, port: 80}
`})
	w.api.User("all", "prometheus")
	w.api.User("some", "sets")
	w.api.User("services", "federation")
	w.api.User("no-streams", "viewer")
	w.api.User("none", "bob")
	w.api.Allow("prometheus * clusters/metrics *", "prometheus * clusters/proxy *", "prometheus create clusters/stream *", "sets get clustersets/metrics pair",
		"federation get clusters/proxy cluster1", "federation create clusters/stream cluster1", "viewer get clusters/proxy *")
	for _, user := range []string{"prometheus", "sets", "federation", "viewer"} {
		w.api.Allow(user + " get clusters/targets -")
	}
	client := w.client()
	const prometheus, web, cart = "monitoring/services/http:prometheus:9090", "shop/services/https:web:https", "shop/services/https:cart:8443"
	service := func(cluster, path string) string {
		return scope.ClustersPath + cluster + "/proxy/api/v1/namespaces/" + path + "/proxy-service/metrics"
	}
	agent := func(cluster string) string { return scope.ClustersPath + cluster + "/metrics" }
	services := []string{service("away", prometheus), service("cluster1", prometheus), service("cluster1", cart), service("cluster2", prometheus), service("cluster2", web)}
	eventually(t, func() bool { // the list was read
		_, body := get(t, client, w.url+targetsPath, http.Header{"Authorization": {"Bearer all"}})
		return strings.Contains(body, "prometheus")
	})
	for _, tc := range []struct {
		name, token, query string
		code               int
		want               []string
		message            string
	}{
		{name: "all", token: "all", code: 200, want: append([]string{agent("away"), agent("cluster1"), agent("cluster2")}, services...)},
		{name: "agents", token: "all", query: "?of=agents", code: 200, want: []string{agent("away"), agent("cluster1"), agent("cluster2")}},
		{name: "Services", token: "all", query: "?of=services", code: 200, want: services},
		{name: "a selector that selects none", token: "all", query: "?labelSelector=" + url.QueryEscape("env=prod"), code: 200, want: []string{}},
		{name: "the right to a set", token: "some", code: 200, want: []string{agent("cluster1"), agent("cluster2")}},
		{name: "the right to Services of one", token: "services", code: 200, want: []string{service("cluster1", prometheus), service("cluster1", cart)}},
		{name: "no right to streams", token: "no-streams", code: 200, want: []string{}},
		{name: "no right to ask", token: "none", code: 403, message: "bind a role such as ClusterRole cluster-proxy-metrics-reader"},
		{name: "a token of a cluster", token: "unknown", code: 401},
		{name: "of something else", token: "all", query: "?of=pods", code: 400, message: "targets are of agents"},
		{name: "no selector", token: "all", query: "?labelSelector=a%3D%3D%3Db", code: 400, message: "labelSelector"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp, body := get(t, client, w.url+targetsPath+tc.query, http.Header{"Authorization": {"Bearer " + tc.token}})
			if resp.StatusCode != tc.code || !strings.Contains(body, tc.message) {
				t.Fatalf("answered %d %s, want %d with %q", resp.StatusCode, body, tc.code, tc.message)
			}
			if tc.code != http.StatusOK {
				return
			}
			got := []string{}
			for _, group := range decode[targetGroups](t, body) {
				got = append(got, group.Labels["__metrics_path__"])
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || resp.Header.Get("Content-Type") != "application/json" {
				t.Errorf("targets of type %s (-want +got):\n%s", resp.Header.Get("Content-Type"), diff)
			}
		})
	}
	header := http.Header{"Authorization": {"Bearer all"}}
	_, body := get(t, client, w.url+targetsPath, header)
	groups := decode[targetGroups](t, body)
	want := targetGroups{
		{[]string{"cluster1"}, map[string]string{"__metrics_path__": agent("cluster1"), "instance": "cluster1", "managed_cluster": "cluster1"}},
		{[]string{"cluster2"}, map[string]string{"__metrics_path__": service("cluster2", web), "instance": "cluster2/shop/web:https", "managed_cluster": "cluster2",
			"__meta_clusterproxy_namespace": "shop", "__meta_clusterproxy_service": "web", "__meta_clusterproxy_port": "https"}},
	}
	if diff := cmp.Diff(want, targetGroups{groups[1], groups[len(groups)-1]}); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	w.api.Allow("prometheus get clusters/targets cluster1")
	if resp, body := get(t, client, w.url+scope.ClustersPath+"cluster1/targets", header); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "clusters/-/targets") {
		t.Errorf("targets of one cluster: %d %s, want 400", resp.StatusCode, body)
	}
}

// TestTargetsAreBounded has a list of Services by which there are too many targets.
func TestTargetsAreBounded(t *testing.T) {
	fleet := fakeClusters{}
	for i := range 5001 {
		fleet[fmt.Sprintf("cluster-%04d", i)] = time.Time{}
	}
	w := startOf(t, fleet, func(*Server) {})
	var list strings.Builder
	for i := range 10 {
		fmt.Fprintf(&list, "- {namespace: a, service: s%d, port: 80, protocol: http}\n", i)
	}
	w.api.SetExposed(map[string]string{"services": list.String()})
	w.api.User("all", "prometheus")
	w.api.Allow("prometheus * clusters/metrics *", "prometheus * clusters/proxy *", "prometheus create clusters/stream *", "prometheus get clusters/targets -")
	client, header := w.client(), http.Header{"Authorization": {"Bearer all"}}
	eventually(t, func() bool {
		resp, body := get(t, client, w.url+targetsPath, header)
		return resp.StatusCode == http.StatusBadRequest && strings.Contains(body, "more than 50000 targets")
	})
	if _, body := get(t, client, w.url+targetsPath+"?of=agents", header); len(decode[targetGroups](t, body)) != len(fleet) {
		t.Errorf("%d agents, want %d", len(decode[targetGroups](t, body)), len(fleet))
	}
}

// BenchmarkTargets asks for the agents of 5,000 clusters, as a Prometheus does each minute.
func BenchmarkTargets(b *testing.B) {
	fleet := fakeClusters{}
	for i := range 5000 {
		fleet[fmt.Sprintf("cluster-%04d", i)] = time.Time{}
	}
	w := startOf(b, fleet, func(*Server) {})
	w.api.User("all", "prometheus")
	w.api.Allow("prometheus * clusters/metrics *", "prometheus get clusters/targets -")
	client, header := w.client(), http.Header{"Authorization": {"Bearer all"}}
	for b.Loop() {
		resp, body := get(b, client, w.url+targetsPath+"?of=agents", header)
		if resp.StatusCode != http.StatusOK || strings.Count(body, `"targets":`) != len(fleet) {
			b.Fatalf("%d: %d targets", resp.StatusCode, strings.Count(body, `"targets":`))
		}
	}
}
