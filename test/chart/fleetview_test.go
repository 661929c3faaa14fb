package chart

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// TestFleetView wants one view, of all clusters, that ends with the release.
func TestFleetView(t *testing.T) {
	object := mustRender(t, "").byName["FleetView/all"]
	view := as[v1alpha1.FleetView](t, object)
	if diff := cmp.Diff(v1alpha1.FleetViewSpec{}, view.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if policy := view.Annotations["helm.sh/resource-policy"]; policy != "" {
		t.Errorf("helm.sh/resource-policy is %q, want none: helm uninstall must delete the view", policy)
	}
	if mustRender(t, "fleetView: {enabled: false}").byName["FleetView/all"] != nil {
		t.Error("the view is made although fleetView.enabled is false")
	}
}

// TestFleetViewInUpgrades wants no view before its CRD: Helm would refuse the whole
// release.
func TestFleetViewInUpgrades(t *testing.T) {
	const again = "Run the same helm upgrade again"
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "fleetviews.proxy.open-cluster-management.io"},
	}}
	for name, test := range map[string]struct {
		live      []runtime.Object
		wantView  bool
		wantAgain bool
	}{
		"from a release without the CRD": {wantAgain: true},
		"with the CRD":                   {live: []runtime.Object{crd}, wantView: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := load(t)
			options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, IsUpgrade: true}
			values, err := chartutil.ToRenderValues(c, map[string]any{}, options, chartutil.DefaultCapabilities)
			if err != nil {
				t.Fatal(err)
			}
			files, err := engine.RenderWithClientProvider(c, values, liveHub{dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), test.live...)})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(files["cluster-proxy/templates/fleetview.yaml"], "kind: FleetView"); got != test.wantView {
				t.Errorf("the view is made: %v, want %v", got, test.wantView)
			}
			if got := strings.Contains(files["cluster-proxy/templates/NOTES.txt"], again); got != test.wantAgain {
				t.Errorf("NOTES.txt contains %q: %v, want %v", again, got, test.wantAgain)
			}
		})
	}
}

// TestRightsToFleetViews wants each role to have these rights and no others.
func TestRightsToFleetViews(t *testing.T) {
	const proxy, clusterproxy, cluster = "proxy.open-cluster-management.io", "clusterproxy.open-cluster-management.io", "cluster.open-cluster-management.io"
	look := []string{"get", "list", "watch"}
	want := map[string]map[string][]string{
		"ClusterRole/open-cluster-management:cluster-proxy:addon-manager": {
			proxy + "/fleetviews": look, proxy + "/fleetviews/status": {"patch"}, cluster + "/managedclustersets": look,
		},
		"ClusterRole/open-cluster-management:cluster-proxy:proxy-api": {proxy + "/fleetviews": look, cluster + "/managedclustersets": look},
		"ClusterRole/cluster-proxy-user": {
			proxy + "/fleetviews": look, clusterproxy + "/fleetviews/proxy": {"get", "create", "update", "patch", "delete", "options"},
		},
		"ClusterRole/cluster-proxy-viewer": {proxy + "/fleetviews": look, clusterproxy + "/fleetviews/proxy": {"get"}},
	}
	got := map[string]map[string][]string{}
	for role, rules := range mustRender(t, everything).rules(t) {
		for _, rule := range rules {
			for _, resource := range rule.Resources {
				if !strings.HasPrefix(resource, "fleetviews") && resource != "managedclustersets" {
					continue
				}
				if got[role] == nil {
					got[role] = map[string][]string{}
				}
				for _, group := range rule.APIGroups {
					key := group + "/" + resource
					got[role][key] = append(got[role][key], rule.Verbs...)
				}
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
}
