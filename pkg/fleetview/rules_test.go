package fleetview

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/discovery"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// ofClusters is a rule that is about some clusters.
func ofClusters(rule fleet.ResourceRule, clusters ...string) fleet.ResourceRule {
	rule.Clusters = func(cluster string) bool { return slices.Contains(clusters, cluster) }
	return rule
}

// TestRulesOfClusters has a view with pods of a and b, ConfigMaps of one namespace of a, both
// of another one of c, and everything else of the cluster "plane", which has no part in lists.
func TestRulesOfClusters(t *testing.T) {
	pods, maps := "/api/v1/namespaces/shop/pods", "/api/v1/namespaces/shop/configmaps"
	var clusters []*cluster
	for _, name := range []string{"a", "b", "c", "plane"} {
		clusters = append(clusters, newCluster(name, pods+"/web", pods+"/of-"+name, maps+"/web", "/api/v1/namespaces/other/pods/x", "/api/v1/namespaces/other/configmaps/x"))
	}
	view := testView(clusters...)
	view.Resources = []fleet.ResourceRule{
		ofClusters(fleet.ResourceRule{Resource: "pods"}, "a", "b"),
		ofClusters(fleet.ResourceRule{Resource: "configmaps", Namespaces: []string{"shop"}}, "a"),
		ofClusters(fleet.ResourceRule{Resource: "pods", Namespaces: []string{"other"}}, "c"),
		ofClusters(fleet.ResourceRule{Resource: "configmaps", Namespaces: []string{"other"}}, "c"),
		ofClusters(fleet.ResourceRule{Resource: "services"}),
	}
	plane := view
	plane.UnlistedCluster = "plane"
	without := view
	without.Resources = []fleet.ResourceRule{ofClusters(fleet.ResourceRule{Resource: "pods"}, "a", "b")}
	for name, test := range map[string]struct {
		view fleet.View
		url  string
		// want are the objects of the list, or what the answer has.
		want []string
		says string
	}{
		"a namespace":                        {view: view, url: pods, want: []string{"of-a@a", "web@a", "of-b@b", "web@b"}},
		"a namespace that a cluster has too": {view: view, url: "/api/v1/namespaces/other/pods", want: []string{"x@a", "x@b", "x@c"}},
		"all namespaces":                     {view: without, url: "/api/v1/pods", want: []string{"x@a", "of-a@a", "web@a", "x@b", "of-b@b", "web@b"}},
		"all namespaces, of one cluster":     {view: view, url: "/api/v1/pods?fieldSelector=metadata.cluster%3Da", says: "in namespaces other only on some of its clusters"},
		"another resource of one":            {view: view, url: maps, want: []string{"web@a"}},
		"all of its namespaces":              {view: view, url: "/api/v1/configmaps", says: "in namespaces other, shop only: name one of them"},
		"an object":                          {view: view, url: pods + "/of-a", says: `"name":"of-a"`},
		"an object, on a cluster without it": {view: view, url: maps + "/web@b", says: `"web@b" not found`},
		"an object that others have too":     {view: view, url: maps + "/web", says: fleet.AnnotationCluster + `":"a"`},
		"an object of others":                {view: plane, url: pods + "/of-plane", says: `"of-plane" not found`},
		"an object of others, by name":       {view: plane, url: pods + "/web@plane", says: `"web@plane" not found`},
		"what no cluster has":                {view: plane, url: "/api/v1/services", says: `view "all" has no cluster`},
		"what is unlisted":                   {view: plane, url: "/api/v1/secrets", says: "GET /api/v1/secrets"},
		"what is unlisted, without one":      {view: view, url: "/api/v1/secrets", says: "does not have resource"},
	} {
		got := New(Options{}).getList(t, test.view, test.url)
		if test.says != "" {
			if body := strings.ReplaceAll(got.body, `\"`, `"`); !strings.Contains(body, test.says) {
				t.Errorf("%s: got %d %q, want %q", name, got.code, body, test.says)
			}
		} else if diff := cmp.Diff(test.want, got.names()); diff != "" || got.code != http.StatusOK {
			t.Errorf("%s: got %d (-want +got):\n%s", name, got.code, diff)
		}
	}
}

// TestDiscoveryRulesOfClusters has a rule for each of two clusters.
func TestDiscoveryRulesOfClusters(t *testing.T) {
	view := discoveryView()
	view.Resources = []fleet.ResourceRule{ofClusters(fleet.ResourceRule{Resource: "pods"}, "old"), ofClusters(fleet.ResourceRule{Resource: "nodes"}, "young")}
	d, members := discovery.NewDiscovery(), twoMembers(aggregatedFormat)
	find := func(resource string) []string {
		found, _ := d.Catalog(t.Context(), view, members, discovery.FreshFor).Find(schema.GroupVersionResource{Version: "v1", Resource: resource})
		return found.Clusters
	}
	if pods, nodes := find("pods"), find("nodes"); !slices.Equal(pods, []string{"old"}) || !slices.Equal(nodes, []string{"young"}) {
		t.Errorf("pods are of %v and nodes of %v, want old and young", pods, nodes)
	}
	view.Resources[0].Clusters = func(cluster string) bool { return cluster == "young" }
	if pods := find("pods"); !slices.Equal(pods, []string{"young"}) {
		t.Errorf("after the rule has changed pods are of %v, want young", pods)
	}
}
