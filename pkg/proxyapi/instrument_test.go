package proxyapi

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// countingClusters counts how often somebody wants to know of a cluster.
type countingClusters struct {
	fakeClusters
	asked int
}

func (c *countingClusters) Served(name string) error {
	c.asked++
	return c.fakeClusters.Served(name)
}

// clusterLabels are the clusters that metrics have series of.
func clusterLabels(t *testing.T, registry *prometheus.Registry) map[string]bool {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]bool{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "managed_cluster" && label.GetValue() != "" {
					labels[family.GetName()+" "+label.GetValue()] = true
				}
			}
		}
	}
	return labels
}

// TestSeriesOfClusters has requests for clusters that are there, are not, and go
// away before the request ends: what is counted by cluster goes with it.
func TestSeriesOfClusters(t *testing.T) {
	for name, tc := range map[string]struct {
		cluster string
		long    bool
		remove  bool
		asked   int
		want    map[string]bool
	}{
		"a request":              {cluster: "cluster1", asked: 1, want: map[string]bool{"cluster_proxy_api_requests_total cluster1": true, "cluster_proxy_api_request_seconds_total cluster1": true}},
		"no such cluster":        {cluster: "nowhere", asked: 1, want: map[string]bool{}},
		"no cluster":             {asked: 0, want: map[string]bool{}},
		"a stream":               {cluster: "cluster1", long: true, asked: 2, want: map[string]bool{"cluster_proxy_api_requests_total cluster1": true, "cluster_proxy_api_request_seconds_total cluster1": true, "cluster_proxy_api_streams cluster1": true}},
		"a stream to no cluster": {cluster: "nowhere", long: true, asked: 2, want: map[string]bool{}},
		"removed":                {cluster: "cluster1", remove: true, asked: 1, want: map[string]bool{}},
		"a stream, removed":      {cluster: "cluster1", long: true, remove: true, asked: 2, want: map[string]bool{}},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			clusters := &countingClusters{fakeClusters: fakeClusters{"cluster1": time.Time{}}}
			m := metrics.New(registry)
			rec := filter.Instrument(httptest.NewRecorder(), &scope.Scope{Target: route.Target{Cluster: tc.cluster}, Long: tc.long}, m, clusters)
			rec.WriteHeader(http.StatusOK)
			if tc.remove {
				delete(clusters.fakeClusters, tc.cluster)
				m.Forget(tc.cluster)
			}
			rec.End()
			if diff := cmp.Diff(tc.want, clusterLabels(t, registry)); diff != "" || clusters.asked != tc.asked {
				t.Errorf("asked %d times, want %d; series (-want +got):\n%s", clusters.asked, tc.asked, diff)
			}
		})
	}
}
