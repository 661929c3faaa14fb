package karmada

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

func TestStatus(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	pods := []v1alpha1.RegistrySelector{{APIVersion: "v1", Kind: "Pod"}}
	zone := v1alpha1.ClusterAffinity{FieldSelector: &v1alpha1.ClusterFieldSelector{MatchExpressions: []v1alpha1.ClusterFieldRequirement{{Key: "zone", Operator: "In"}}}}
	for name, tc := range map[string]struct {
		spec        v1alpha1.ResourceRegistrySpec
		want        metav1.ConditionStatus
		wantReason  string
		wantMessage string
	}{
		"valid":            {spec: v1alpha1.ResourceRegistrySpec{ResourceSelectors: pods}, want: metav1.ConditionTrue, wantReason: v1alpha1.ReasonRegistryValid},
		"with a store":     {spec: v1alpha1.ResourceRegistrySpec{ResourceSelectors: pods, BackendStore: &v1alpha1.RegistryBackend{}}, want: metav1.ConditionTrue, wantReason: v1alpha1.ReasonRegistryValid, wantMessage: "nothing is cached"},
		"an unknown field": {spec: v1alpha1.ResourceRegistrySpec{TargetCluster: zone, ResourceSelectors: pods}, want: metav1.ConditionFalse, wantReason: v1alpha1.ReasonTargetClusterInvalid, wantMessage: "serves nothing until"},
		"a wrong kind":     {spec: v1alpha1.ResourceRegistrySpec{ResourceSelectors: []v1alpha1.RegistrySelector{{APIVersion: "v1"}}}, want: metav1.ConditionFalse, wantReason: v1alpha1.ReasonResourceSelectorInvalid, wantMessage: "resourceSelectors[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			registry := &v1alpha1.KarmadaResourceRegistry{ObjectMeta: metav1.ObjectMeta{Name: "r", Generation: 7}, Spec: tc.spec}
			c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(registry).WithObjects(registry).Build()
			if _, err := (&Reconciler{Client: c}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(registry)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(registry), registry); err != nil {
				t.Fatal(err)
			}
			if len(registry.Status.Conditions) != 1 {
				t.Fatalf("conditions %+v, want one", registry.Status.Conditions)
			}
			got := registry.Status.Conditions[0]
			if got.Type != "Valid" || got.Status != tc.want || got.Reason != tc.wantReason || got.ObservedGeneration != 7 || !strings.Contains(got.Message, tc.wantMessage) {
				t.Errorf("condition %+v, want %s, %s, with %q", got, tc.want, tc.wantReason, tc.wantMessage)
			}
		})
	}
}

func TestRegistryIsGone(t *testing.T) {
	scheme := runtime.NewScheme()
	_ = v1alpha1.AddToScheme(scheme)
	if _, err := (&Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).Build()}).Reconcile(t.Context(), ctrl.Request{}); err != nil {
		t.Error(err)
	}
}
