package clusters

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// fakeHub lists cluster1 and its addon, which is away, and sends the events that it
// is told to. It knows plain list and watch only.
type fakeHub struct{ clusters, addons chan event }

type event struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	isClusters := strings.HasSuffix(r.URL.Path, "/managedclusters")
	query := r.URL.Query()
	switch {
	case !isClusters && query.Get("fieldSelector") != "metadata.name=cluster-proxy":
		http.Error(w, "more addons than needed: "+r.URL.String(), http.StatusBadRequest)
	case query.Has("sendInitialEvents"):
		http.Error(w, "sendInitialEvents is not supported", http.StatusUnprocessableEntity)
	case query.Get("watch") == "" && isClusters:
		_ = json.NewEncoder(w).Encode(clusterv1.ManagedClusterList{
			TypeMeta: metav1.TypeMeta{APIVersion: "cluster.open-cluster-management.io/v1", Kind: "ManagedClusterList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "2"}, Items: []clusterv1.ManagedCluster{*cluster("1")},
		})
	case query.Get("watch") == "":
		_ = json.NewEncoder(w).Encode(addonv1alpha1.ManagedClusterAddOnList{
			TypeMeta: metav1.TypeMeta{APIVersion: "addon.open-cluster-management.io/v1alpha1", Kind: "ManagedClusterAddOnList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "2"}, Items: []addonv1alpha1.ManagedClusterAddOn{*addon("1")},
		})
	default:
		events := h.addons
		if isClusters {
			events = h.clusters
		}
		for {
			_ = http.NewResponseController(w).Flush()
			select {
			case e := <-events:
				_ = json.NewEncoder(w).Encode(e)
			case <-r.Context().Done():
				return
			}
		}
	}
}

var (
	created = time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)
	away    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// cluster is cluster1, accepted.
func cluster(version string, change ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{
		TypeMeta: metav1.TypeMeta{APIVersion: "cluster.open-cluster-management.io/v1", Kind: "ManagedCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: "cluster1", UID: "uid1", ResourceVersion: version, Labels: map[string]string{"env": "test"},
			CreationTimestamp: metav1.NewTime(created), Annotations: map[string]string{"long": "text"}},
		Spec:   clusterv1.ManagedClusterSpec{HubAcceptsClient: true},
		Status: clusterv1.ManagedClusterStatus{Version: clusterv1.ManagedClusterVersion{Kubernetes: "v1.36.3"}},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func addon(version string, change ...func(*addonv1alpha1.ManagedClusterAddOn)) *addonv1alpha1.ManagedClusterAddOn {
	a := &addonv1alpha1.ManagedClusterAddOn{
		TypeMeta:   metav1.TypeMeta{APIVersion: "addon.open-cluster-management.io/v1alpha1", Kind: "ManagedClusterAddOn"},
		ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName, Namespace: "cluster1", UID: "addon1", ResourceVersion: version}}
	a.Status.Conditions = []metav1.Condition{
		{Type: "Progressing", Status: metav1.ConditionTrue},
		{Type: "Available", Status: metav1.ConditionUnknown, LastTransitionTime: metav1.NewTime(away)},
	}
	for _, f := range change {
		f(a)
	}
	return a
}

// watching returns Clusters that have read a hub, the hub, and the names of clusters
// that are gone.
func watching(t *testing.T) (*Clusters, *fakeHub, <-chan string) {
	t.Helper()
	hub := &fakeHub{clusters: make(chan event), addons: make(chan event)}
	api := httptest.NewServer(hub)
	t.Cleanup(api.Close)
	clusters, err := New(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan string, 10)
	clusters.OnGone(func(cluster string) { gone <- cluster })
	if clusters.Synced() == nil || clusters.Served("cluster1") == nil {
		t.Error("synced before it started")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- clusters.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	clusters.WaitForSync(t.Context())
	if err := clusters.Synced(); err != nil {
		t.Fatal(err)
	}
	return clusters, hub, gone
}

func TestClustersAreDescribed(t *testing.T) {
	clusters, _, _ := watching(t)
	if since := clusters.AwaySince("cluster1"); !since.Equal(away) {
		t.Errorf("away since %v, want %v", since, away)
	}
	described := clusters.Describe("cluster1")
	if s := described.Status; s.Available != metav1.ConditionUnknown || s.Version != "v1.36.3" || !s.LastSeen.Time.Equal(away) || described.Labels["env"] != "test" || described.UID != "uid1" {
		t.Errorf("described as %+v", described)
	}
	if len(described.Annotations) > 0 || len(clusters.addon("cluster1").Status.Conditions) != 1 {
		t.Errorf("more is kept than used: %+v", described)
	}
	if names := clusters.Names(); len(names) != 1 || names[0] != "cluster1" {
		t.Errorf("names are %q, want cluster1", names)
	}
	if since := clusters.AwaySince("cluster2"); !since.IsZero() {
		t.Errorf("cluster2 away since %v", since)
	}
}

// Service ends at once when anything is taken away, and OnGone says so.
func TestWhatIsTakenAway(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct {
		cluster, addon *event
		reason         string // empty: another cluster is served under the name
	}{
		"the cluster is not accepted": {reason: "not accepted", cluster: &event{"MODIFIED", cluster("5", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false })}},
		"the cluster is being deleted": {reason: "is being deleted", cluster: &event{"MODIFIED", cluster("5", func(c *clusterv1.ManagedCluster) {
			c.DeletionTimestamp, c.Finalizers = &now, []string{"f"}
		})}},
		"the cluster is deleted": {reason: "there is no managed cluster", cluster: &event{"DELETED", cluster("5")}},
		"another cluster has the name": {cluster: &event{"MODIFIED", cluster("5", func(c *clusterv1.ManagedCluster) {
			c.UID = "uid2"
		})}},
		"the addon is being deleted": {reason: "is losing the addon", addon: &event{"MODIFIED", addon("5", func(a *addonv1alpha1.ManagedClusterAddOn) {
			a.DeletionTimestamp, a.Finalizers = &now, []string{"f"}
		})}},
		"the addon is deleted":          {reason: "does not have the addon", addon: &event{"DELETED", addon("5")}},
		"another addon is in its place": {addon: &event{"MODIFIED", addon("5", func(a *addonv1alpha1.ManagedClusterAddOn) { a.UID = "addon2" })}},
	} {
		t.Run(name, func(t *testing.T) {
			clusters, hub, gone := watching(t)
			old := pki.Agent{Cluster: "cluster1", ClusterUID: "uid1"}
			if err := clusters.Admit(old); err != nil {
				t.Fatal(err)
			}
			if test.cluster != nil {
				hub.clusters <- *test.cluster
			} else {
				hub.addons <- *test.addon
			}
			if cluster := <-gone; cluster != "cluster1" {
				t.Errorf("%q is gone", cluster)
			}
			err := clusters.Served("cluster1")
			if test.reason == "" && err != nil || test.reason != "" && (err == nil || !strings.Contains(err.Error(), test.reason)) {
				t.Errorf("Served: %v, want %q", err, test.reason)
			}
			if err := clusters.Admit(old); err == nil && (test.reason != "" || clusters.cluster("cluster1").UID != "uid1") {
				t.Error("the old agent is admitted")
			}
		})
	}
}

func TestAdmit(t *testing.T) {
	clusters, _, gone := watching(t)
	for name, test := range map[string]struct {
		agent pki.Agent
		want  string
	}{
		"its own UID":              {agent: pki.Agent{Cluster: "cluster1", ClusterUID: "uid1", Issued: created.Add(-time.Hour)}},
		"an earlier cluster's UID": {agent: pki.Agent{Cluster: "cluster1", ClusterUID: "uid0", Issued: created.Add(time.Hour)}, want: "UID uid0"},
		"no UID, issued after the cluster was created":  {agent: pki.Agent{Cluster: "cluster1", Issued: created}},
		"no UID, issued before the cluster was created": {agent: pki.Agent{Cluster: "cluster1", Issued: created.Add(-time.Second)}, want: "was created after"},
		"another cluster": {agent: pki.Agent{Cluster: "cluster2", ClusterUID: "uid1"}, want: "there is no managed cluster"},
	} {
		if err := clusters.Admit(test.agent); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	select {
	case name := <-gone:
		t.Errorf("%q is gone", name)
	default:
	}
}
