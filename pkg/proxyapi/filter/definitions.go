package filter

import (
	"errors"
	"fmt"
	"slices"
	"time"

	karmadav1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/karmada/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// Define returns the definition of the view that a request is for.
func (f *Filters) Define(rs *scope.Scope) (scope.Definition, error) {
	switch {
	case !rs.IsKarmadas():
		view, err := f.Views.Get(rs.Target.View)
		if err != nil || view == nil { // it was there a moment ago
			return nil, fmt.Errorf("FleetView %q is changing: try again", rs.Target.View)
		}
		return &fleetViewDefinition{f.Views, view}, nil
	case rs.Target.View == scope.RegistriesView:
		return &registriesDefinition{f.Karmada, f.Clusters}, nil
	}
	return &everyDefinition{f.Clusters}, nil
}

// fleetViewDefinition is a FleetView.
type fleetViewDefinition struct {
	views scope.Views
	// view is as it was when the request came.
	view *proxyv1alpha1.FleetView
}

func (d *fleetViewDefinition) Clusters() ([]string, error) {
	view, err := d.views.Get(d.view.Name)
	if err == nil && view == nil {
		err = errors.New("it is gone")
	}
	var selected []string
	if err == nil {
		selected, err = d.views.Clusters(view)
	}
	if err != nil {
		return nil, fmt.Errorf("FleetView %q cannot be served: %w", d.view.Name, err)
	}
	if unlisted := view.Spec.UnlistedResources; unlisted != nil && !slices.Contains(selected, unlisted.Cluster) {
		selected = slices.Sorted(slices.Values(append(slices.Clone(selected), unlisted.Cluster)))
	}
	return selected, nil
}

func (d *fleetViewDefinition) Describe(view *fleet.View) error {
	spec := d.view.Spec
	view.Name = d.view.Name
	view.Qualified = spec.Names == proxyv1alpha1.NamesQualified
	switch spec.Writes {
	case proxyv1alpha1.WritesAny:
		view.Writes = fleet.WritesAny
	case proxyv1alpha1.WritesNone:
		view.Writes = fleet.WritesNone
	}
	view.FailWhenUnreachable = spec.WhenUnreachable == proxyv1alpha1.WhenUnreachableFail
	if spec.ClusterTimeoutSeconds > 0 {
		view.Timeout = time.Duration(spec.ClusterTimeoutSeconds) * time.Second
	}
	if spec.InformerTimeoutSeconds > 0 {
		view.InformerTimeout = time.Duration(spec.InformerTimeoutSeconds) * time.Second
	}
	view.Single = isSingle(spec)
	var of func(cluster string) bool
	if spec.UnlistedResources != nil {
		unlisted := spec.UnlistedResources.Cluster
		view.UnlistedCluster = unlisted
		selected, err := d.views.Clusters(d.view)
		if err != nil {
			return err
		}
		if !slices.Contains(selected, unlisted) {
			of = func(cluster string) bool { return cluster != unlisted }
		}
	}
	for _, r := range spec.Resources {
		view.Resources = append(view.Resources, fleet.ResourceRule{Group: r.Group, Resource: r.Resource, Namespaces: slices.Clone(r.Namespaces), Clusters: of})
	}
	return nil
}

// isSingle reports whether a FleetView is of one cluster and can have no other as long as
// nobody changes it. A user who wants NAME@CLUSTER gets that from one cluster too.
func isSingle(spec proxyv1alpha1.FleetViewSpec) bool {
	of := spec.Clusters
	return len(of.Names) == 1 && len(of.ClusterSets) == 0 && of.Selector == nil && spec.Names != proxyv1alpha1.NamesQualified &&
		(spec.UnlistedResources == nil || spec.UnlistedResources.Cluster == of.Names[0])
}

func (d *fleetViewDefinition) Indexed() bool {
	return d.view.Spec.Reads == proxyv1alpha1.ReadsIndexed && !isSingle(d.view.Spec)
}

func (d *fleetViewDefinition) Changed() bool {
	view, err := d.views.Get(d.view.Name)
	return err == nil && (view == nil || view.UID != d.view.UID || view.Generation != d.view.Generation)
}

// registriesDefinition is the union of all ResourceRegistries.
type registriesDefinition struct {
	*scope.Karmada
	served scope.Clusters
}

func (d *registriesDefinition) Clusters() ([]string, error) {
	rules, err := d.Registries.Rules()
	if err != nil {
		return nil, err
	}
	var selected []string
	for _, cluster := range d.served.Names() {
		for _, rule := range rules {
			if cluster == d.ControlPlane || rule.Selects(cluster) {
				selected = append(selected, cluster)
				break
			}
		}
	}
	if d.ControlPlane != "" && !slices.Contains(selected, d.ControlPlane) {
		selected = append(selected, d.ControlPlane)
	}
	slices.Sort(selected)
	return selected, nil
}

func (d *registriesDefinition) Describe(view *fleet.View) error {
	view.Name, view.UnlistedCluster = scope.RegistriesView, d.ControlPlane
	view.Annotations, view.Writes = []string{karmadav1alpha1.CachedFrom}, fleet.WritesAny
	rules, err := d.Registries.Rules()
	// Without rules a view has everything. This one is of no resource.
	view.Resources = []fleet.ResourceRule{{Clusters: func(string) bool { return false }}}
	for _, rule := range rules {
		for _, resource := range rule.Plurals() {
			of := fleet.ResourceRule{Group: rule.Group, Resource: resource, Clusters: rule.Selects}
			if rule.Namespace != "" {
				of.Namespaces = []string{rule.Namespace}
			}
			view.Resources = append(view.Resources, of)
		}
	}
	return err
}

// Indexed is for FleetViews.
func (d *registriesDefinition) Indexed() bool { return false }

// Changed is for views that are Single, which this is not.
func (d *registriesDefinition) Changed() bool { return false }

// everyDefinition is all clusters with everything that they serve.
type everyDefinition struct{ served scope.Clusters }

func (d *everyDefinition) Clusters() ([]string, error) {
	return slices.Sorted(slices.Values(d.served.Names())), nil
}

func (d *everyDefinition) Describe(view *fleet.View) error {
	view.Name, view.Annotations, view.Writes = scope.EveryView, []string{karmadav1alpha1.CachedFrom}, fleet.WritesAny
	return nil
}

// Indexed is for FleetViews.
func (d *everyDefinition) Indexed() bool { return false }

// Changed is for views that are Single, which this is not.
func (d *everyDefinition) Changed() bool { return false }
