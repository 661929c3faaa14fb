package clusters

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// clusterAt is a cluster with a label and two claims.
func clusterAt(name, env, platform, region string) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"env": env}}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: claimPlatform, Value: platform}, {Name: claimRegion, Value: region}, {Name: "other", Value: "x"}}
	return c
}

func fieldsOf(key, operator string, values ...string) *v1alpha1.ClusterFieldSelector {
	return &v1alpha1.ClusterFieldSelector{MatchExpressions: []v1alpha1.ClusterFieldRequirement{{Key: key, Operator: operator, Values: values}}}
}

func TestRegistrySelection(t *testing.T) {
	clusters := []*clusterv1.ManagedCluster{clusterAt("a", "prod", "AWS", "eu"), clusterAt("b", "prod", "GCP", "us"), clusterAt("c", "test", "AWS", "us")}
	pods := []v1alpha1.RegistrySelector{{APIVersion: "v1", Kind: "Pod"}}
	prod := &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	for name, tc := range map[string]struct {
		target     v1alpha1.ClusterAffinity
		resources  []v1alpha1.RegistrySelector
		want       string
		wantReason string
		wantError  string
	}{
		"all":                     {want: "a b c"},
		"names":                   {target: v1alpha1.ClusterAffinity{ClusterNames: []string{"a", "c", "nowhere"}}, want: "a c"},
		"excluded":                {target: v1alpha1.ClusterAffinity{ClusterNames: []string{"a", "c"}, ExcludeClusters: []string{"a"}}, want: "c"},
		"labels":                  {target: v1alpha1.ClusterAffinity{LabelSelector: prod}, want: "a b"},
		"labels and names":        {target: v1alpha1.ClusterAffinity{LabelSelector: prod, ClusterNames: []string{"b", "c"}}, want: "b"},
		"a field":                 {target: v1alpha1.ClusterAffinity{FieldSelector: fieldsOf("provider", "In", "AWS")}, want: "a c"},
		"not a field":             {target: v1alpha1.ClusterAffinity{FieldSelector: fieldsOf("region", "NotIn", "us", "ap")}, want: "a"},
		"an unknown field":        {target: v1alpha1.ClusterAffinity{FieldSelector: fieldsOf("zone", "In", "1")}, wantReason: v1alpha1.ReasonTargetClusterInvalid, wantError: `field "zone"`},
		"an unknown operator":     {target: v1alpha1.ClusterAffinity{FieldSelector: fieldsOf("region", "Exists")}, wantReason: v1alpha1.ReasonTargetClusterInvalid, wantError: `operator "Exists"`},
		"labels that are none":    {target: v1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"no key": "x"}}}, wantReason: v1alpha1.ReasonTargetClusterInvalid, wantError: "labelSelector"},
		"a version that is none":  {resources: []v1alpha1.RegistrySelector{{APIVersion: "a/b/c", Kind: "X"}, pods[0]}, wantReason: v1alpha1.ReasonResourceSelectorInvalid, wantError: "resourceSelectors[0]"},
		"no version":              {resources: []v1alpha1.RegistrySelector{{Kind: "X"}}, wantReason: v1alpha1.ReasonResourceSelectorInvalid, wantError: "has no version"},
		"a kind that is none":     {resources: []v1alpha1.RegistrySelector{{APIVersion: "v1", Kind: "*"}}, wantReason: v1alpha1.ReasonResourceSelectorInvalid, wantError: `kind "*"`},
		"a kind that is a path":   {resources: []v1alpha1.RegistrySelector{{APIVersion: "v1", Kind: "pods/exec"}}, wantReason: v1alpha1.ReasonResourceSelectorInvalid, wantError: `kind "pods/exec"`},
		"nothing":                 {resources: []v1alpha1.RegistrySelector{}, want: "a b c"},
		"a place that is claimed": {target: v1alpha1.ClusterAffinity{FieldSelector: fieldsOf("provider", "In", "")}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.resources == nil {
				tc.resources = pods
			}
			selection, err := NewRegistrySelection(&v1alpha1.ResourceRegistrySpec{TargetCluster: tc.target, ResourceSelectors: tc.resources})
			var wrong *SelectionError
			if errors.As(err, &wrong); (tc.wantReason == "") != (err == nil) || wrong != nil && (wrong.Reason != tc.wantReason || !strings.Contains(err.Error(), tc.wantError)) {
				t.Errorf("error %v, want reason %q with %q", err, tc.wantReason, tc.wantError)
			}
			var got []string
			for _, cluster := range clusters {
				if selection.Selects(cluster) {
					got = append(got, cluster.Name)
				}
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("selects %v, want %q", got, tc.want)
			}
		})
	}
}

func TestPlurals(t *testing.T) {
	for want, kind := range map[string]RegistryResource{
		"pods": {Kind: "Pod"}, "endpoints": {Kind: "Endpoints"}, "ingresses": {Kind: "Ingress"}, "networkpolicies": {Kind: "NetworkPolicy"}, "gateways": {Kind: "Gateway"},
		"storageclasses": {Kind: "StorageClass"}, "nodes": {Group: "metrics.k8s.io", Kind: "NodeMetrics"}, "odd": {Kind: "odd"},
	} {
		if got := kind.Plurals(); !slices.Contains(got, want) {
			t.Errorf("%s has %v, want %s among them", kind.Kind, got, want)
		}
	}
	if got := (RegistryResource{Group: "example.org", Kind: "NodeMetrics"}).Plurals(); slices.Contains(got, "nodes") {
		t.Errorf("NodeMetrics of another group has %v", got)
	}
}

// TestRegistriesOfTheHub reads registries, one of which cannot be served.
func TestRegistriesOfTheHub(t *testing.T) {
	hub := &listingHub{lists: map[string]any{}}
	hub.set("managedclusters", "cluster.open-cluster-management.io/v1", "ManagedCluster", clusterAt("a", "prod", "AWS", "eu"), clusterAt("b", "test", "AWS", "us"))
	hub.set("managedclusteraddons", "addon.open-cluster-management.io/v1alpha1", "ManagedClusterAddOn")
	registry := func(name string, target v1alpha1.ClusterAffinity, kinds ...string) *v1alpha1.KarmadaResourceRegistry {
		r := &v1alpha1.KarmadaResourceRegistry{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ResourceRegistrySpec{TargetCluster: target}}
		for _, kind := range kinds {
			r.Spec.ResourceSelectors = append(r.Spec.ResourceSelectors, v1alpha1.RegistrySelector{APIVersion: "v1", Kind: kind})
		}
		return r
	}
	hub.set(registriesResource, v1alpha1.GroupVersion.String(), "KarmadaResourceRegistry",
		registry("one", v1alpha1.ClusterAffinity{ClusterNames: []string{"a"}}, "Pod", "Node"), registry("two", v1alpha1.ClusterAffinity{FieldSelector: fieldsOf("zone", "In", "1")}, "Secret"))
	server := httptest.NewServer(hub)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	clusters, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	registries, err := NewRegistries(config, clusters)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := registries.Rules(); err == nil {
		t.Error("the rules are known before anything was read")
	}
	var running sync.WaitGroup
	running.Go(func() { _ = clusters.Run(t.Context()) })
	running.Go(func() { _ = registries.Run(t.Context()) })
	t.Cleanup(func() { server.CloseClientConnections(); running.Wait() })
	wait.Poll{Every: 10 * time.Millisecond}.Until(t, "all is known", func() bool {
		_, err := registries.Rules()
		return err == nil && clusters.Synced() == nil
	})
	rules, _ := registries.Rules()
	var got []string
	for _, rule := range rules {
		got = append(got, fmt.Sprint(rule.Kind, rule.Selects("a"), rule.Selects("b"), rule.Selects("nowhere")))
	}
	if diff := cmp.Diff([]string{"Podtrue false false", "Nodetrue false false", "Secretfalse false false"}, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if provider, region := clusters.Place("b"); provider != "AWS" || region != "us" {
		t.Errorf("b is at %q %q, want AWS us", provider, region)
	}
	registries.drop(&v1alpha1.KarmadaResourceRegistry{ObjectMeta: metav1.ObjectMeta{Name: "one"}})
	if rules[0].Selects("a") {
		t.Error("a rule of a registry that is gone selects")
	}
}
