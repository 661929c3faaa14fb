package chart

import (
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
)

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
