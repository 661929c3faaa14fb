package chart

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"open-cluster-management.io/cluster-proxy/test/testkit/admission"
)

// newFleetViewSchema does with a FleetView what a kube-apiserver does before it stores one.
func newFleetViewSchema(t *testing.T) admission.Schema {
	t.Helper()
	definition, err := os.ReadFile("../../charts/cluster-proxy/files/fleetviews.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return admission.New(t, definition, "v1alpha1")
}

// admitView sets the defaults of a view and returns why it is refused.
func admitView(t *testing.T, s admission.Schema, name, spec string) (map[string]any, field.ErrorList) {
	t.Helper()
	view := map[string]any{"apiVersion": "proxy.open-cluster-management.io/v1alpha1", "kind": "FleetView", "metadata": map[string]any{"name": name}}
	maps.Copy(view, admission.Decode(t, []byte(spec)))
	return view, s.Admit(t, view)
}

// TestFleetViewDefaults wants the same view with an empty spec and without one.
func TestFleetViewDefaults(t *testing.T) {
	s := newFleetViewSchema(t)
	want := map[string]any{
		"names": "Plain", "reads": "Live", "writes": "NamedCluster", "whenUnreachable": "Warn", "clusterTimeoutSeconds": int64(5), "informerTimeoutSeconds": int64(45),
	}
	for _, spec := range []string{"", "spec: {}"} {
		view, errs := admitView(t, s, "all", spec)
		if len(errs) > 0 {
			t.Errorf("%q is refused: %v", spec, errs.ToAggregate())
		}
		if diff := cmp.Diff(want, view["spec"]); diff != "" {
			t.Errorf("%q: spec (-want +got):\n%s", spec, diff)
		}
	}
}

func TestFleetViewValidation(t *testing.T) {
	s := newFleetViewSchema(t)
	many := func(n int) string { return strings.Repeat("{group: a, resource: b},", n) }
	for name, test := range map[string]struct {
		view string
		spec string
		want string
	}{
		"the design's example": {spec: `{clusters: {clusterSets: [prod], selector: {matchLabels: {region: eu}}, names: [edge-7]},
			resources: [{group: "", resource: pods, namespaces: [shop]}, {group: apps, resource: "*"}],
			unlistedResources: {cluster: local-cluster}, names: Qualified, whenUnreachable: Fail, clusterTimeoutSeconds: 60, informerTimeoutSeconds: 300}`},
		"the core group by default":       {spec: `{resources: [{resource: pods}]}`},
		"names":                           {spec: "{names: Short}", want: "spec.names"},
		"reads":                           {spec: "{reads: Cached}", want: "spec.reads"},
		"writes":                          {spec: "{writes: Some}", want: "spec.writes"},
		"when unreachable":                {spec: "{whenUnreachable: Wait}", want: "spec.whenUnreachable"},
		"no timeout":                      {spec: "{clusterTimeoutSeconds: 0}", want: "spec.clusterTimeoutSeconds"},
		"a long timeout":                  {spec: "{clusterTimeoutSeconds: 61}", want: "spec.clusterTimeoutSeconds"},
		"no timeout for informers":        {spec: "{informerTimeoutSeconds: 0}", want: "spec.informerTimeoutSeconds"},
		"a long one":                      {spec: "{informerTimeoutSeconds: 301}", want: "spec.informerTimeoutSeconds"},
		"no sets, which is not all":       {spec: "{clusters: {clusterSets: []}}", want: "spec.clusters.clusterSets"},
		"no names, which is not all":      {spec: "{clusters: {names: []}}", want: "spec.clusters.names"},
		"a name twice":                    {spec: "{clusters: {names: [a, a]}}", want: "Duplicate"},
		"a resource of no name":           {spec: `{resources: [{group: apps}]}`, want: "resource"},
		"a subresource":                   {spec: `{resources: [{group: "", resource: pods/log}]}`, want: "spec.resources[0].resource"},
		"a group with a version":          {spec: `{resources: [{group: apps/v1, resource: deployments}]}`, want: "spec.resources[0].group"},
		"no namespaces, which is not all": {spec: `{resources: [{resource: pods, namespaces: []}]}`, want: "namespaces"},
		"resources without end":           {spec: "{resources: [" + many(101) + "]}", want: "spec.resources"},
		"unlisted without a list":         {spec: "{unlistedResources: {cluster: a}}", want: "unlistedResources requires resources"},
		"unlisted with an empty list":     {spec: "{resources: [], unlistedResources: {cluster: a}}", want: "unlistedResources requires resources"},
		"unlisted without a cluster":      {spec: `{resources: [{resource: pods}], unlistedResources: {}}`, want: "cluster"},
		"a long name":                     {view: strings.Repeat("a", 64), spec: "{}", want: "at most 63 characters"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.view == "" {
				test.view = "v"
			}
			_, errs := admitView(t, s, test.view, "spec: "+test.spec)
			if test.want == "" && len(errs) > 0 || test.want != "" && (len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), test.want)) {
				t.Errorf("got errors %v, want one that contains %q", errs.ToAggregate(), test.want)
			}
		})
	}
}
