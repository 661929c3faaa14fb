package clusters

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"

	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

func clusterSet(name string, kind clusterv1beta2.SelectorType, by *metav1.LabelSelector) *clusterv1beta2.ManagedClusterSet {
	return &clusterv1beta2.ManagedClusterSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       clusterv1beta2.ManagedClusterSetSpec{ClusterSelector: clusterv1beta2.ManagedClusterSelector{SelectorType: kind, LabelSelector: by}},
	}
}

func matching(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// nonsense is a selector that the CRD's schema admits and that selects nothing.
func nonsense() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "region", Operator: "Like", Values: []string{"eu"}}}}
}

// allSets are sets of each type, OCM's own two, and broken ones.
func allSets() []*clusterv1beta2.ManagedClusterSet {
	return []*clusterv1beta2.ManagedClusterSet{
		clusterSet("prod", clusterv1beta2.ExclusiveClusterSetLabel, nil),
		clusterSet("untyped", "", nil),
		clusterSet("eu", clusterv1beta2.LabelSelector, matching("region", "eu")),
		clusterSet("default", clusterv1beta2.ExclusiveClusterSetLabel, nil),
		clusterSet("global", clusterv1beta2.LabelSelector, &metav1.LabelSelector{}),
		clusterSet("without-selector", clusterv1beta2.LabelSelector, nil),
		clusterSet("broken", clusterv1beta2.LabelSelector, nonsense()),
		clusterSet("of-the-future", "CEL", nil),
	}
}

func allClusters() map[string]map[string]string {
	return map[string]map[string]string{
		"a":      {clusterv1beta2.ClusterSetLabel: "prod", "region": "eu"},
		"b":      {clusterv1beta2.ClusterSetLabel: "default", "region": "eu"},
		"c":      {clusterv1beta2.ClusterSetLabel: "untyped", "region": "us"},
		"edge-7": nil,
	}
}

func TestSelection(t *testing.T) {
	byName := map[string]*clusterv1beta2.ManagedClusterSet{}
	for _, set := range allSets() {
		byName[set.Name] = set
	}
	for name, test := range map[string]struct {
		clusters    proxyv1alpha1.FleetViewClusters
		want        []string
		wantMissing []string
		wantReason  string
		wantError   string
	}{
		"empty":                   {want: []string{"a", "b", "c", "edge-7"}},
		"a set by its label":      {clusters: proxyv1alpha1.FleetViewClusters{ClusterSets: []string{"prod"}}, want: []string{"a"}},
		"a set without a type":    {clusters: proxyv1alpha1.FleetViewClusters{ClusterSets: []string{"untyped"}}, want: []string{"c"}},
		"a set by a selector":     {clusters: proxyv1alpha1.FleetViewClusters{ClusterSets: []string{"eu"}}, want: []string{"a", "b"}},
		"the set default":         {clusters: proxyv1alpha1.FleetViewClusters{ClusterSets: []string{"default"}}, want: []string{"b"}},
		"the set global":          {clusters: proxyv1alpha1.FleetViewClusters{ClusterSets: []string{"global"}}, want: []string{"a", "b", "c", "edge-7"}},
		"a set without selector":  {clusters: proxyv1alpha1.FleetViewClusters{ClusterSets: []string{"without-selector"}}},
		"a selector":              {clusters: proxyv1alpha1.FleetViewClusters{Selector: matching("region", "us")}, want: []string{"c"}},
		"an empty selector":       {clusters: proxyv1alpha1.FleetViewClusters{Selector: &metav1.LabelSelector{}}, want: []string{"a", "b", "c", "edge-7"}},
		"names, some of clusters": {clusters: proxyv1alpha1.FleetViewClusters{Names: []string{"edge-7", "nowhere"}}, want: []string{"edge-7"}},
		"terms are ORed": {
			clusters: proxyv1alpha1.FleetViewClusters{ClusterSets: []string{"prod"}, Selector: matching("region", "us"), Names: []string{"edge-7"}},
			want:     []string{"a", "c", "edge-7"},
		},
		"a set that does not exist is not all clusters": {
			clusters:    proxyv1alpha1.FleetViewClusters{ClusterSets: []string{"gone"}},
			wantMissing: []string{"gone"},
		},
		"other terms hold beside a set that does not exist": {
			clusters: proxyv1alpha1.FleetViewClusters{ClusterSets: []string{"gone", "prod"}, Names: []string{"c"}},
			want:     []string{"a", "c"}, wantMissing: []string{"gone"},
		},
		"an invalid selector": {
			clusters:   proxyv1alpha1.FleetViewClusters{Selector: nonsense(), Names: []string{"c"}},
			wantReason: proxyv1alpha1.ReasonSelectorInvalid, wantError: "spec.clusters.selector",
		},
		"an invalid selector of a set": {
			clusters:   proxyv1alpha1.FleetViewClusters{ClusterSets: []string{"broken"}, Names: []string{"c"}},
			wantReason: proxyv1alpha1.ReasonClusterSetInvalid, wantError: `ManagedClusterSet "broken"`,
		},
		"a set of an unknown type": {
			clusters:   proxyv1alpha1.FleetViewClusters{ClusterSets: []string{"of-the-future"}},
			wantReason: proxyv1alpha1.ReasonClusterSetInvalid, wantError: `selectorType "CEL"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			selection, err := NewSelection(&test.clusters, func(name string) *clusterv1beta2.ManagedClusterSet { return byName[name] })
			if test.wantReason != "" {
				var wrong *SelectionError
				if !errors.As(err, &wrong) || wrong.Reason != test.wantReason || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("error is %v, want one with reason %s about %s", err, test.wantReason, test.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, selection.Of(maps.All(allClusters()))); diff != "" {
				t.Errorf("selected (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wantMissing, selection.MissingSets()); diff != "" {
				t.Errorf("missing sets (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSetsOf(t *testing.T) {
	want := map[string][]string{
		"a":      {"eu", "global", "prod"},
		"b":      {"default", "eu", "global"},
		"c":      {"global", "untyped"},
		"edge-7": {"global"},
	}
	byName := map[string]*clusterv1beta2.ManagedClusterSet{}
	for _, set := range allSets() {
		byName[set.Name] = set
	}
	selectors := selectorsOf(slices.Sorted(maps.Keys(byName)), func(name string) *clusterv1beta2.ManagedClusterSet { return byName[name] })
	got := map[string][]string{}
	for name, labels := range allClusters() {
		got[name] = setsOf(selectors, labels)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sets (-want +got):\n%s", diff)
	}
}
