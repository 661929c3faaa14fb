package agentaddon

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
)

// TestExposedServices follows the hub's ConfigMap through its life.
func TestExposedServices(t *testing.T) {
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "list", Namespace: "hub"}}
	c := fake.NewClientBuilder().Build()
	addon := &Addon{Reader: c, ExposedServices: client.ObjectKeyFromObject(stored)}
	check := func(when string, want agentapi.ExposedServices) {
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
	both := agentapi.ExposedServices{{Namespace: "a", Service: "c", Port: "web"}, {Namespace: "a", Service: "b"}}
	check("two keys", both)
	stored.Data["more"] = "- {namespace: a, servce: c}\n- {namespace: a, service: 1password-connect}"
	if err := c.Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	both = agentapi.ExposedServices{{Namespace: "a", Service: "1password-connect"}, {Namespace: "a", Service: "b"}}
	check("with a wrong entry", both)
	// A manager that has just started renders agents, too.
	addon = &Addon{Reader: c, ExposedServices: addon.ExposedServices}
	check("with a wrong entry, after a restart", both)
	stored.Data["more"] = "- {namespace: a"
	if err := c.Update(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	check("with what is no list", both)
	// A manager that has just started has no list to keep: the manifests do.
	if list, err := (&Addon{Reader: c, ExposedServices: addon.ExposedServices}).exposedServices(t.Context()); err == nil {
		t.Errorf("a mistake is read as %v by a manager that has just started", list)
	}
	if err := c.Delete(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	check("deleted", nil)
}

// TestAgentsGetTheirClustersServices renders for clusters in a set and out of it.
// Agents of a release before this one refuse fields that they do not know.
func TestAgentsGetTheirClustersServices(t *testing.T) {
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "list", Namespace: "hub"}, Data: map[string]string{"services": `
- {namespace: a, service: everywhere, port: 80, anonymous: true}
- {namespace: a, service: of-one, clusters: [c1]}
- {namespace: a, service: of-set, clusterSets: [prod], forwardAuthorization: true}
`}}
	addon := &Addon{Reader: fake.NewClientBuilder().WithObjects(stored).Build(), ExposedServices: client.ObjectKeyFromObject(stored)}
	const everywhere, ofOne, ofSet = `{"namespace":"a","service":"everywhere","port":"80"}`, `{"namespace":"a","service":"of-one"}`, `{"namespace":"a","service":"of-set","forwardAuthorization":true}`
	for _, test := range []struct{ cluster, set, want string }{
		{"c1", "", "[" + everywhere + "," + ofOne + "]"},
		{"c2", "prod", "[" + everywhere + "," + ofSet + "]"},
		{"c2", "dev", "[" + everywhere + "]"},
	} {
		var v values
		cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: test.cluster, Labels: map[string]string{"cluster.open-cluster-management.io/clusterset": test.set}}}
		if err := addon.exposeServices(t.Context(), &v, cluster, ""); err != nil {
			t.Fatal(err)
		}
		if v.ExposedServices != test.want {
			t.Errorf("cluster %q in set %q gets %s, want %s", test.cluster, test.set, v.ExposedServices, test.want)
		}
	}
}

// TestWhatConcernsAgents changes a ManagedCluster in what manifests are made of,
// and in what they are not.
func TestWhatConcernsAgents(t *testing.T) {
	cluster := func(labels, annotations map[string]string) *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}}
	}
	for _, test := range []struct {
		name string
		now  *clusterv1.ManagedCluster
		want bool
	}{
		{"set", cluster(map[string]string{"cluster.open-cluster-management.io/clusterset": "prod"}, nil), true},
		{"the hub itself", cluster(map[string]string{"local-cluster": "true"}, nil), true},
		{"image registries", cluster(nil, map[string]string{"open-cluster-management.io/image-registries": "{}"}), true},
		{"node selector", cluster(nil, map[string]string{"open-cluster-management/nodeSelector": "{}"}), true},
		{"something else", cluster(map[string]string{"a": "b"}, map[string]string{"c": "d"}), false},
	} {
		if got := concernsAgent(cluster(nil, nil), test.now); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
