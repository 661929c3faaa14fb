package accesspolicy

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

func TestStatus(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, clusterv1beta2.Install} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	prod := v1alpha1.FleetViewClusters{ClusterSets: []string{"prod"}}
	for name, tc := range map[string]struct {
		clusters    v1alpha1.FleetViewClusters
		mode        v1alpha1.AccessPolicyMode
		expressions []string
		want        metav1.ConditionStatus
		wantReason  string
		wantMessage string
	}{
		"compiled":               {clusters: prod, expressions: []string{"request.verb == 'get'", "true"}, want: metav1.ConditionTrue, wantReason: v1alpha1.ReasonAccessPolicyCompiled},
		"a rule":                 {expressions: []string{"true", "request.verbs == 'get'"}, want: metav1.ConditionFalse, wantReason: v1alpha1.ReasonExpressionInvalid, wantMessage: `refuses what it selects until its rules are corrected: rule "b": compiling it: 1:8: undefined field 'verbs'`},
		"a rule that only warns": {mode: v1alpha1.ModeWarn, expressions: []string{"nonsense"}, want: metav1.ConditionFalse, wantReason: v1alpha1.ReasonExpressionInvalid, wantMessage: "The policy warns of what it selects"},
		"a set":                  {clusters: v1alpha1.FleetViewClusters{ClusterSets: []string{"prod", "gone"}}, expressions: []string{"true"}, want: metav1.ConditionFalse, wantReason: v1alpha1.ReasonClusterSetNotFound, wantMessage: "No ManagedClusterSet gone exists"},
		"a selector":             {clusters: v1alpha1.FleetViewClusters{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"no key": "x"}}}, expressions: []string{"true"}, want: metav1.ConditionFalse, wantReason: v1alpha1.ReasonSelectorInvalid, wantMessage: "selects all clusters until"},
		"a rule and a set":       {clusters: v1alpha1.FleetViewClusters{ClusterSets: []string{"gone"}}, expressions: []string{"nonsense"}, want: metav1.ConditionFalse, wantReason: v1alpha1.ReasonExpressionInvalid, wantMessage: "No ManagedClusterSet gone exists"},
		"much":                   {expressions: []string{"[" + strings.Repeat("nonsense, ", 300) + "1].size() == 0"}, want: metav1.ConditionFalse, wantReason: v1alpha1.ReasonExpressionInvalid, wantMessage: "…"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &v1alpha1.AccessPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 7}, Spec: v1alpha1.AccessPolicySpec{Clusters: tc.clusters, Mode: tc.mode}}
			for i, expression := range tc.expressions {
				policy.Spec.Rules = append(policy.Spec.Rules, v1alpha1.AccessPolicyRule{Name: string(rune('a' + i)), Expression: expression})
			}
			set := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
			r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(policy).WithObjects(policy, set).Build()}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(policy)}); err != nil {
				t.Fatal(err)
			}
			if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
				t.Fatal(err)
			}
			if len(policy.Status.Conditions) != 1 || policy.Status.ObservedGeneration != 7 {
				t.Fatalf("status %+v, want one condition of generation 7", policy.Status)
			}
			got := policy.Status.Conditions[0]
			if got.Status != tc.want || got.Reason != tc.wantReason || !strings.Contains(got.Message, tc.wantMessage) || len(got.Message) > maxMessage {
				t.Errorf("condition %+v, want %s for %s with %q", got, tc.want, tc.wantReason, tc.wantMessage)
			}
			if naming := r.naming(t.Context(), set); (len(naming) == 1) != (len(tc.clusters.ClusterSets) > 0 && tc.clusters.ClusterSets[0] == "prod") {
				t.Errorf("set prod is named by %v", naming)
			}
		})
	}
}
