package proxyapi

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	karmadav1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/karmada/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"

	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
)

// TestWritesOfViews says which writes each kind of view takes.
func TestWritesOfViews(t *testing.T) {
	define := func(group schema.GroupVersion, view string, writes proxyv1alpha1.FleetViewWrites) scope.Definition {
		views := &fakeViews{}
		(&world{views: views}).addView("v", "cluster1").Spec.Writes = writes
		f := &filter.Filters{Views: views, Karmada: &scope.Karmada{Registries: &fakeRegistries{}}}
		definition, err := f.Define(&scope.Scope{Kind: scope.View, Group: group, Target: route.Target{View: view}})
		if err != nil {
			t.Fatal(err)
		}
		return definition
	}
	of := func(writes proxyv1alpha1.FleetViewWrites) scope.Definition {
		return define(v1alpha1.GroupVersion, "v", writes)
	}
	karmadas := karmadav1alpha1.ClusterGroupVersion
	for name, test := range map[string]struct {
		definition scope.Definition
		want       fleet.Writes
	}{
		"a FleetView of before":  {of(""), fleet.WritesNamed},
		"NamedCluster":           {of(proxyv1alpha1.WritesNamedCluster), fleet.WritesNamed},
		"Any":                    {of(proxyv1alpha1.WritesAny), fleet.WritesAny},
		"None":                   {of(proxyv1alpha1.WritesNone), fleet.WritesNone},
		"Karmada's registries":   {define(karmadas, scope.RegistriesView, ""), fleet.WritesAny},
		"Karmada's all clusters": {define(karmadas, scope.EveryView, ""), fleet.WritesAny},
	} {
		var got fleet.View
		if err := test.definition.Describe(&got); err != nil || got.Writes != test.want {
			t.Errorf("%s: writes %d, %v; want %d", name, got.Writes, err, test.want)
		}
	}
}
