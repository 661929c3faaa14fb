package proxyapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
)

// fakeHub lists cluster1 and its addon, which is away, and deletes cluster1
// when told to. It knows plain list and watch only.
type fakeHub struct{ deleteCluster chan struct{} }

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	clusters := strings.HasSuffix(r.URL.Path, "/managedclusters")
	query := r.URL.Query()
	switch {
	case !clusters && query.Get("fieldSelector") != "metadata.name=cluster-proxy":
		writeStatus(w, http.StatusBadRequest, "more addons than needed: "+r.URL.String())
	case query.Has("sendInitialEvents"):
		writeStatus(w, http.StatusUnprocessableEntity, "sendInitialEvents is not supported")
	case query.Get("watch") == "":
		h.list(w, clusters)
	default:
		_ = http.NewResponseController(w).Flush()
		if clusters {
			select {
			case <-h.deleteCluster:
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "DELETED", "object": cluster1("3")})
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
			}
		}
		<-r.Context().Done()
	}
}

func cluster1(version string) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: "cluster.open-cluster-management.io/v1", Kind: "ManagedCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: "cluster1", ResourceVersion: version, Labels: map[string]string{"env": "test"}},
		Status:     clusterv1.ManagedClusterStatus{Version: clusterv1.ManagedClusterVersion{Kubernetes: "v1.36.3"}},
	}
}

func (h *fakeHub) list(w http.ResponseWriter, clusters bool) {
	if clusters {
		_ = json.NewEncoder(w).Encode(clusterv1.ManagedClusterList{
			TypeMeta: metav1.TypeMeta{APIVersion: "cluster.open-cluster-management.io/v1", Kind: "ManagedClusterList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "2"}, Items: []clusterv1.ManagedCluster{*cluster1("1")},
		})
		return
	}
	addon := addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: "cluster-proxy", Namespace: "cluster1", ResourceVersion: "1"}}
	addon.Status.Conditions = []metav1.Condition{{Type: "Available", Status: metav1.ConditionUnknown, LastTransitionTime: metav1.NewTime(away)}}
	_ = json.NewEncoder(w).Encode(addonv1alpha1.ManagedClusterAddOnList{
		TypeMeta: metav1.TypeMeta{APIVersion: "addon.open-cluster-management.io/v1alpha1", Kind: "ManagedClusterAddOnList"},
		ListMeta: metav1.ListMeta{ResourceVersion: "2"}, Items: []addonv1alpha1.ManagedClusterAddOn{addon},
	})
}

func TestClustersAreWatched(t *testing.T) {
	hub := &fakeHub{deleteCluster: make(chan struct{})}
	api := httptest.NewServer(hub)
	defer api.Close()
	gone := make(chan string, 1)
	watched, err := newWatchedClusters(&rest.Config{Host: api.URL}, func(cluster string) { gone <- cluster })
	if err != nil {
		t.Fatal(err)
	}
	if watched.synced() == nil || watched.known("cluster1") {
		t.Error("synced before it started")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- watched.run(ctx) }()
	defer func() { cancel(); <-done }()
	for _, synced := range []<-chan struct{}{watched.clusters.HasSyncedChecker().Done(), watched.addons.HasSyncedChecker().Done()} {
		select {
		case <-synced:
		case <-time.After(20 * time.Second):
			t.Fatal("not synced")
		}
	}
	if err := watched.synced(); err != nil || !watched.known("cluster1") || watched.known("cluster2") {
		t.Errorf("synced %v, known %v", err, watched.known("cluster1"))
	}
	if since := watched.awaySince("cluster1"); !since.Equal(away) {
		t.Errorf("away since %v, want %v", since, away)
	}
	described := watched.describe("cluster1")
	if s := described.Status; s.Available != metav1.ConditionUnknown || s.Version != "v1.36.3" || !s.LastSeen.Time.Equal(away) || described.Labels["env"] != "test" {
		t.Errorf("described as %+v", described)
	}
	if since := watched.awaySince("cluster2"); !since.IsZero() {
		t.Errorf("cluster2 away since %v", since)
	}
	close(hub.deleteCluster)
	if cluster := <-gone; cluster != "cluster1" || watched.known("cluster1") {
		t.Errorf("%q is gone, still known: %v", cluster, watched.known("cluster1"))
	}
}
