package fleetview

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

var since = metav1.NewTime(time.Date(2026, 11, 1, 10, 2, 0, 0, time.UTC))

func managed(name string, labels map[string]string) *clusterv1.ManagedCluster {
	return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
}

// addon returns the addon of a cluster whose condition Available has that status, or
// that has no such condition if the status is empty.
func addon(cluster string, available metav1.ConditionStatus) *addonv1alpha1.ManagedClusterAddOn {
	a := &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: identity.AddonName}}
	if available != "" {
		a.Status.Conditions = []metav1.Condition{{Type: "Available", Status: available, Reason: "LeaseUpdateStopped", LastTransitionTime: since}}
	}
	return a
}

// fleet is clusters of each kind: three that are served, and others.
func fleet() []client.Object {
	now := metav1.Now()
	denied, deleted := managed("denied", nil), managed("deleted", nil)
	denied.Spec.HubAcceptsClient = false
	deleted.DeletionTimestamp, deleted.Finalizers = &now, []string{"a/b"}
	return []client.Object{
		managed("a", map[string]string{"region": "eu"}), addon("a", metav1.ConditionTrue),
		managed("b", map[string]string{"region": "eu"}), addon("b", metav1.ConditionUnknown),
		managed("c", nil), addon("c", ""),
		denied, addon("denied", metav1.ConditionTrue), deleted, addon("deleted", metav1.ConditionTrue), managed("without-addon", nil),
		&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "eu"}, Spec: clusterv1beta2.ManagedClusterSetSpec{
			ClusterSelector: clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}}}},
	}
}

// newReconciler returns a reconciler over objects that counts what it writes.
func newReconciler(t *testing.T, objects ...client.Object) (r *Reconciler, writes *int) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{addonv1alpha1.Install, clusterv1.Install, clusterv1beta2.Install, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	writes = new(int)
	count := interceptor.Funcs{SubResourceApply: func(ctx context.Context, c client.Client, subresource string, object runtime.ApplyConfiguration, o ...client.SubResourceApplyOption) error {
		*writes++
		return c.SubResource(subresource).Apply(ctx, object, o...)
	}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.FleetView{}).WithObjects(objects...).WithInterceptorFuncs(count).Build()
	return &Reconciler{Client: c}, writes
}

// status reconciles all views and returns the status of one.
func (r *Reconciler) status(t *testing.T, view string) v1alpha1.FleetViewStatus {
	t.Helper()
	if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil {
		t.Fatal(err)
	}
	var got v1alpha1.FleetView
	if err := r.Client.Get(t.Context(), client.ObjectKey{Name: view}, &got); err != nil {
		t.Fatal(err)
	}
	return got.Status
}

// set changes whether a cluster can be reached.
func (r *Reconciler) set(t *testing.T, cluster string, available metav1.ConditionStatus) {
	t.Helper()
	var a addonv1alpha1.ManagedClusterAddOn
	if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(addon(cluster, "")), &a); err != nil {
		t.Fatal(err)
	}
	a.Status = addon(cluster, available).Status
	if err := r.Client.Update(t.Context(), &a); err != nil {
		t.Fatal(err)
	}
}

func view(spec v1alpha1.FleetViewSpec) *v1alpha1.FleetView {
	return &v1alpha1.FleetView{ObjectMeta: metav1.ObjectMeta{Name: "v", Generation: 3}, Spec: spec}
}

func TestStatus(t *testing.T) {
	b := v1alpha1.UnreachableCluster{Name: "b", Since: &since, Reason: "LeaseUpdateStopped"}
	c := v1alpha1.UnreachableCluster{Name: "c", Reason: v1alpha1.ReasonAgentNotReported}
	for name, test := range map[string]struct {
		spec        v1alpha1.FleetViewSpec
		want        v1alpha1.FleetViewStatus
		wantValid   metav1.ConditionStatus
		wantReason  string
		wantMessage string
	}{
		"all clusters that are served": {
			want:      v1alpha1.FleetViewStatus{Clusters: 3, Reachable: 1, UnreachableCount: 2, Unreachable: []v1alpha1.UnreachableCluster{b, c}},
			wantValid: metav1.ConditionTrue, wantReason: v1alpha1.ReasonFleetViewValid,
		},
		"a set": {
			spec:      v1alpha1.FleetViewSpec{Clusters: v1alpha1.FleetViewClusters{ClusterSets: []string{"eu"}}},
			want:      v1alpha1.FleetViewStatus{Clusters: 2, Reachable: 1, UnreachableCount: 1, Unreachable: []v1alpha1.UnreachableCluster{b}},
			wantValid: metav1.ConditionTrue, wantReason: v1alpha1.ReasonFleetViewValid,
		},
		"names, of which some are not served": {
			spec:      v1alpha1.FleetViewSpec{Clusters: v1alpha1.FleetViewClusters{Names: []string{"a", "denied", "deleted", "without-addon"}}},
			want:      v1alpha1.FleetViewStatus{Clusters: 1, Reachable: 1},
			wantValid: metav1.ConditionTrue, wantReason: v1alpha1.ReasonFleetViewValid,
		},
		"a set that does not exist": {
			spec:      v1alpha1.FleetViewSpec{Clusters: v1alpha1.FleetViewClusters{ClusterSets: []string{"us"}, Names: []string{"a"}}},
			want:      v1alpha1.FleetViewStatus{Clusters: 1, Reachable: 1},
			wantValid: metav1.ConditionFalse, wantReason: v1alpha1.ReasonClusterSetNotFound, wantMessage: "ManagedClusterSet us exists: create it",
		},
		"a selector that is none": {
			spec: v1alpha1.FleetViewSpec{Clusters: v1alpha1.FleetViewClusters{Names: []string{"a"},
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"not a key": "x"}}}},
			wantValid: metav1.ConditionFalse, wantReason: v1alpha1.ReasonSelectorInvalid, wantMessage: "serves no cluster until",
		},
		"unlisted resources without a cluster": {
			spec: v1alpha1.FleetViewSpec{Clusters: v1alpha1.FleetViewClusters{Names: []string{"a"}},
				UnlistedResources: &v1alpha1.FleetViewUnlistedResources{Cluster: "denied"}},
			want:      v1alpha1.FleetViewStatus{Clusters: 1, Reachable: 1},
			wantValid: metav1.ConditionFalse, wantReason: v1alpha1.ReasonUnlistedClusterNotServed, wantMessage: `Cluster "denied"`,
		},
		"unlisted resources with a cluster that the view does not select": {
			spec: v1alpha1.FleetViewSpec{Clusters: v1alpha1.FleetViewClusters{Names: []string{"a"}},
				UnlistedResources: &v1alpha1.FleetViewUnlistedResources{Cluster: "b"}},
			want:      v1alpha1.FleetViewStatus{Clusters: 1, Reachable: 1},
			wantValid: metav1.ConditionTrue, wantReason: v1alpha1.ReasonFleetViewValid,
		},
		"unlisted resources with a cluster of the view": {
			spec: v1alpha1.FleetViewSpec{Clusters: v1alpha1.FleetViewClusters{ClusterSets: []string{"eu"}},
				UnlistedResources: &v1alpha1.FleetViewUnlistedResources{Cluster: "a"}},
			want:      v1alpha1.FleetViewStatus{Clusters: 2, Reachable: 1, UnreachableCount: 1, Unreachable: []v1alpha1.UnreachableCluster{b}},
			wantValid: metav1.ConditionTrue, wantReason: v1alpha1.ReasonFleetViewValid,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newReconciler(t, append(fleet(), view(test.spec))...)
			got := r.status(t, "v")
			test.want.ObservedGeneration = 3
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(v1alpha1.FleetViewStatus{}, "Conditions")); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if len(got.Conditions) != 1 {
				t.Fatalf("conditions are %+v, want one", got.Conditions)
			}
			valid := got.Conditions[0]
			if valid.Type != "Valid" || valid.Status != test.wantValid || valid.Reason != test.wantReason || valid.ObservedGeneration != 3 || !strings.Contains(valid.Message, test.wantMessage) {
				t.Errorf("condition is %+v, want Valid=%s with reason %s for generation 3, with a message that contains %q", valid, test.wantValid, test.wantReason, test.wantMessage)
			}
		})
	}
}

// TestManyUnreachable wants a bounded list and the whole count.
func TestManyUnreachable(t *testing.T) {
	objects := []client.Object{view(v1alpha1.FleetViewSpec{})}
	const clusters = v1alpha1.MaxUnreachable + 20
	for i := range clusters {
		name := fmt.Sprintf("c%03d", i)
		objects = append(objects, managed(name, nil), addon(name, metav1.ConditionFalse))
	}
	r, _ := newReconciler(t, objects...)
	got := r.status(t, "v")
	if len(got.Unreachable) != v1alpha1.MaxUnreachable || got.UnreachableCount != clusters {
		t.Errorf("%d clusters are listed and %d counted, want %d and %d", len(got.Unreachable), got.UnreachableCount, v1alpha1.MaxUnreachable, clusters)
	}
	if first, last := got.Unreachable[0].Name, got.Unreachable[len(got.Unreachable)-1].Name; first != "c000" || last != "c099" {
		t.Errorf("the list is from %s to %s, want the first by name", first, last)
	}
}

// TestWritesOnlyChanges wants a write when the status changes, and none otherwise.
func TestWritesOnlyChanges(t *testing.T) {
	r, writes := newReconciler(t, append(fleet(), view(v1alpha1.FleetViewSpec{}))...)
	for range 3 {
		r.status(t, "v")
	}
	if *writes != 1 {
		t.Errorf("%d writes for three rounds without a change, want 1", *writes)
	}
	r.set(t, "c", metav1.ConditionTrue)
	if got := r.status(t, "v"); got.Reachable != 2 || *writes != 2 {
		t.Errorf("after a cluster came back %d are reachable after %d writes, want 2 and 2", got.Reachable, *writes)
	}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "gone"}}); err != nil {
		t.Errorf("a view that is gone: %v, want no error", err)
	}
}

// TestFlappingCluster has a cluster that comes and goes each Interval for an hour, and a view
// that changes meanwhile.
func TestFlappingCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, writes := newReconciler(t, append(fleet(), view(v1alpha1.FleetViewSpec{}))...)
		for i := range int(time.Hour / Interval) {
			r.set(t, "c", []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionUnknown}[i%2])
			r.status(t, "v")
			time.Sleep(Interval)
		}
		if *writes > 70 {
			t.Errorf("%d writes in an hour, want one a minute and a few", *writes)
		}
		var v v1alpha1.FleetView
		if err := r.Client.Get(t.Context(), client.ObjectKey{Name: "v"}, &v); err != nil {
			t.Fatal(err)
		}
		v.Generation++
		if err := r.Client.Update(t.Context(), &v); err != nil {
			t.Fatal(err)
		}
		if got := r.status(t, "v"); got.ObservedGeneration != v.Generation {
			t.Errorf("generation %d of the view is not written while its numbers are held back", v.Generation)
		}
		r.set(t, "c", metav1.ConditionTrue)
		result, err := r.Reconcile(t.Context(), ctrl.Request{})
		for i := 0; err == nil && result.RequeueAfter > 0 && i < 100; i++ {
			time.Sleep(result.RequeueAfter)
			result, err = r.Reconcile(t.Context(), ctrl.Request{})
		}
		if got := r.status(t, "v"); err != nil || got.Reachable != 2 {
			t.Errorf("in the end %d are reachable, %v, want 2", got.Reachable, err)
		}
	})
}
