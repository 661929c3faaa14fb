package addonmanager

import (
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	addonfake "open-cluster-management.io/api/client/addon/clientset/versioned/fake"
)

// TestIgnoredVariablesAreReported wants a condition and one event, and neither again
// while nothing changes.
func TestIgnoredVariablesAreReported(t *testing.T) {
	addon := &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: "cluster-proxy", Namespace: "cluster1", ResourceVersion: "1"}}
	client := addonfake.NewSimpleClientset(addon)
	recorder := events.NewFakeRecorder(10)
	n := &notices{addons: client, events: recorder}
	for _, step := range []struct {
		name       string
		variables  []string
		wantEvents int
		want       string // in the condition; "" for none
	}{
		{"none", nil, 0, ""},
		{"two", []string{"serviceDomain", "enableImpersonation"}, 1, "enableImpersonation, serviceDomain"},
		{"the same", []string{"enableImpersonation", "serviceDomain"}, 0, "enableImpersonation, serviceDomain"},
		{"one", []string{"serviceDomain"}, 1, "variables serviceDomain of"},
		{"none again", nil, 0, ""},
	} {
		stored, err := client.AddonV1alpha1().ManagedClusterAddOns("cluster1").Get(t.Context(), "cluster-proxy", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.write(t.Context(), stored, step.variables); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		stored, err = client.AddonV1alpha1().ManagedClusterAddOns("cluster1").Get(t.Context(), "cluster-proxy", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		condition := apimeta.FindStatusCondition(stored.Status.Conditions, conditionVariablesIgnored)
		if (condition != nil) != (step.want != "") || condition != nil && !strings.Contains(condition.Message, step.want) {
			t.Errorf("%s: the condition is %v, want one that says %q", step.name, condition, step.want)
		}
		if got := len(recorder.Events); got != step.wantEvents {
			t.Errorf("%s: %d events, want %d", step.name, got, step.wantEvents)
		}
		for len(recorder.Events) > 0 {
			<-recorder.Events
		}
	}
}
