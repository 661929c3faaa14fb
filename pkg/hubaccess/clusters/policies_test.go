package clusters

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"

	"open-cluster-management.io/cluster-proxy/pkg/accesspolicy"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// refusing has a policy that refuses everything in the clusters that it selects.
func refusing(name string, clusters v1alpha1.FleetViewClusters) *v1alpha1.AccessPolicy {
	return &v1alpha1.AccessPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
		Spec: v1alpha1.AccessPolicySpec{Clusters: clusters, Rules: []v1alpha1.AccessPolicyRule{{Name: "r", Expression: "false"}}}}
}

// startPolicies has the hub of startViews, with policies.
func startPolicies(t *testing.T, prepare func(*listingHub)) (*Policies, *listingHub) {
	t.Helper()
	views, _, hub := startViews(t, prepare)
	api := httptest.NewServer(hub)
	t.Cleanup(api.Close)
	policies, err := NewPolicies(&rest.Config{Host: api.URL}, views)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := policies.Set(); err == nil {
		t.Error("policies are known before they were read")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = policies.Run(t.Context())
	}()
	t.Cleanup(func() { api.CloseClientConnections(); <-done })
	return policies, hub
}

// refused are the clusters that a policy refuses.
func refused(t *testing.T, policies *Policies) string {
	t.Helper()
	set, err := policies.Set()
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, name := range []string{"a", "b", "c"} {
		if d := set.Decide(&accesspolicy.Request{Cluster: policies.Cluster(name)}); d.Refusal() != nil {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func TestPolicies(t *testing.T) {
	const apiVersion = "proxy.open-cluster-management.io/v1alpha1"
	for name, tc := range map[string]struct {
		clusters v1alpha1.FleetViewClusters
		want     string
	}{
		"all":            {want: "a b c"},
		"a name":         {clusters: v1alpha1.FleetViewClusters{Names: []string{"a"}}, want: "a"},
		"labels":         {clusters: v1alpha1.FleetViewClusters{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}}, want: "a"},
		"a set":          {clusters: v1alpha1.FleetViewClusters{ClusterSets: []string{"prod"}}, want: "b"},
		"a missing set":  {clusters: v1alpha1.FleetViewClusters{ClusterSets: []string{"prod", "gone"}}, want: "a b c"},
		"a bad selector": {clusters: v1alpha1.FleetViewClusters{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"no key": "x"}}}, want: "a b c"},
	} {
		t.Run(name, func(t *testing.T) {
			policies, _ := startPolicies(t, func(hub *listingHub) {
				hub.set("managedclustersets", "cluster.open-cluster-management.io/v1beta2", "ManagedClusterSet", &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "prod"}})
				hub.set("accesspolicies", apiVersion, "AccessPolicy", refusing("p", tc.clusters))
			})
			wait.Poll{Every: 10 * time.Millisecond}.Until(t, "policies refuse "+tc.want, func() bool { return refused(t, policies) == tc.want })
		})
	}
}

// TestPolicyChanges replaces and deletes a policy and a set, as the watches tell.
func TestPolicyChanges(t *testing.T) {
	policies, _ := startPolicies(t, func(hub *listingHub) {
		hub.set("managedclustersets", "cluster.open-cluster-management.io/v1beta2", "ManagedClusterSet", &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "prod"}})
		hub.set("accesspolicies", "proxy.open-cluster-management.io/v1alpha1", "AccessPolicy")
	})
	wait.Poll{Every: 10 * time.Millisecond}.Until(t, "policies are known", func() bool {
		return refused(t, policies) == "" && policies.views.sets.synced() == nil && policies.views.clusters.Synced() == nil
	})
	want := func(when, want string) {
		t.Helper()
		if got := refused(t, policies); got != want {
			t.Errorf("%s: refused in %q, want %q", when, got, want)
		}
	}
	policies.keep(refusing("p", v1alpha1.FleetViewClusters{ClusterSets: []string{"prod"}}))
	want("a policy of a set", "b")
	if got := policies.Cluster("b").Sets(); len(got) != 1 || got[0] != "prod" {
		t.Errorf("the sets of b are %v", got)
	}
	sets := policies.views.sets.informer.GetStore()
	set, _, _ := sets.GetByKey("prod")
	if err := sets.Delete(set); err != nil {
		t.Fatal(err)
	}
	policies.findSets(set)
	want("its set is deleted", "a b c")
	if err := sets.Add(set); err != nil {
		t.Fatal(err)
	}
	policies.findSets(set)
	want("it is back", "b")
	changed := refusing("p", v1alpha1.FleetViewClusters{Names: []string{"c"}})
	policies.keep(changed)
	want("the status has changed", "b") // the generation is the same
	changed.Generation = 2
	policies.keep(changed)
	want("the spec has changed", "c")
	policies.drop(cache.DeletedFinalStateUnknown{Key: "p", Obj: changed})
	want("it is deleted", "")
}

// TestPoliciesOfTheHub has a hub without the kind, and one that refuses to show it.
func TestPoliciesOfTheHub(t *testing.T) {
	lacking, _ := startPolicies(t, func(*listingHub) {})
	wait.Poll{Every: 10 * time.Millisecond}.Until(t, "the kind is missing", func() bool { return refused(t, lacking) == "" })
	refusesUs, hub := startPolicies(t, func(hub *listingHub) { hub.refuses = "accesspolicies" })
	wait.Poll{Every: 10 * time.Millisecond}.Until(t, "the hub has refused", func() bool {
		hub.mu.Lock()
		defer hub.mu.Unlock()
		return hub.refused > 1
	})
	if _, err := refusesUs.Set(); err == nil {
		t.Error("a hub that refuses to show policies has none")
	}
}
