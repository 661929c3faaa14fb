package addonmanager

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// TestAvailability follows addons that come, change and go: a cluster has a series
// as long as it has the addon.
func TestAvailability(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := addonv1alpha1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	addon := func(cluster, name string, status metav1.ConditionStatus) *addonv1alpha1.ManagedClusterAddOn {
		a := &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
		if status != "" {
			a.Status.Conditions = []metav1.Condition{{Type: addonv1alpha1.ManagedClusterAddOnConditionAvailable, Status: status}}
		}
		return a
	}
	ending := addon("ending", identity.AddonName, metav1.ConditionTrue)
	ending.Finalizers, ending.DeletionTimestamp = []string{"a/b"}, &metav1.Time{Time: metav1.Now().Time}
	all := []client.Object{addon("up", identity.AddonName, metav1.ConditionTrue), addon("down", identity.AddonName, metav1.ConditionFalse),
		addon("unknown", identity.AddonName, metav1.ConditionUnknown), addon("new", identity.AddonName, ""), addon("up", "another", metav1.ConditionTrue), ending}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).Build()
	registry := prometheus.NewRegistry()
	show := showAvailability(hub, registry)
	reconcile := func(want string) {
		t.Helper()
		for _, object := range all {
			if _, err := show(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(object)}); err != nil {
				t.Fatal(err)
			}
		}
		const head = "# HELP cluster_proxy_manager_addon_available 1 if the condition Available of a cluster's addon is True, else 0. A cluster without the addon has no series.\n" +
			"# TYPE cluster_proxy_manager_addon_available gauge\n"
		if err := testutil.GatherAndCompare(registry, strings.NewReader(head+want)); err != nil {
			t.Error(err)
		}
	}
	const others = `cluster_proxy_manager_addon_available{managed_cluster="down"} 0
cluster_proxy_manager_addon_available{managed_cluster="new"} 0
cluster_proxy_manager_addon_available{managed_cluster="unknown"} 0
`
	reconcile(others + "cluster_proxy_manager_addon_available{managed_cluster=\"up\"} 1\n")
	if err := hub.Delete(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
	reconcile(others)
}
