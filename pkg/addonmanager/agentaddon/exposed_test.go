package agentaddon

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"open-cluster-management.io/cluster-proxy/pkg/exposedservices"
)

// TestExposedServices follows the hub's ConfigMap through its life.
func TestExposedServices(t *testing.T) {
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "list", Namespace: "hub"}}
	c := fake.NewClientBuilder().Build()
	addon := &Addon{Reader: c, ExposedServices: client.ObjectKeyFromObject(stored)}
	check := func(when string, want exposedservices.List) {
		t.Helper()
		got, err := addon.exposedServices(t.Context())
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", when, err, diff)
		}
	}
	check("without a ConfigMap", nil)
	stored.Data = map[string]string{"services": "- {namespace: a, service: b}", "more": "- {namespace: a, service: c, port: web}"}
	if err := c.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	both := exposedservices.List{{Namespace: "a", Service: "c", Port: "web"}, {Namespace: "a", Service: "b"}}
	check("two keys", both)
	stored.Data["more"] = "- {namespace: a, servce: c}"
	if err := c.Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	check("with a mistake", both)
	// A manager that has just started has no list to keep: the manifests do.
	if list, err := (&Addon{Reader: c, ExposedServices: addon.ExposedServices}).exposedServices(t.Context()); err == nil {
		t.Errorf("a mistake is read as %v by a manager that has just started", list)
	}
	if err := c.Delete(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	check("deleted", nil)
}
