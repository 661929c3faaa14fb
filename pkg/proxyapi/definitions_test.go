package proxyapi

import (
	"testing"

	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview"
)

// TestWritesOfViews says which writes each kind of view takes.
func TestWritesOfViews(t *testing.T) {
	of := func(writes proxyv1alpha1.FleetViewWrites) definition {
		view := &proxyv1alpha1.FleetView{}
		view.Spec.Writes = writes
		return &fleetViewDefinition{&fakeViews{}, view}
	}
	for name, test := range map[string]struct {
		definition definition
		want       fleetview.Writes
	}{
		"a FleetView of before":  {of(""), fleetview.WritesNamed},
		"NamedCluster":           {of(proxyv1alpha1.WritesNamedCluster), fleetview.WritesNamed},
		"Any":                    {of(proxyv1alpha1.WritesAny), fleetview.WritesAny},
		"None":                   {of(proxyv1alpha1.WritesNone), fleetview.WritesNone},
		"Karmada's registries":   {&registriesDefinition{karmada: &karmada{registries: &fakeRegistries{}}}, fleetview.WritesAny},
		"Karmada's all clusters": {&everyDefinition{}, fleetview.WritesAny},
	} {
		var got fleetview.View
		if err := test.definition.describe(&got); err != nil || got.Writes != test.want {
			t.Errorf("%s: writes %d, %v; want %d", name, got.Writes, err, test.want)
		}
	}
}
