package clusters

import (
	"fmt"
	"iter"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"

	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// Selection decides which clusters a FleetView, or an AccessPolicy, selects. It is immutable: whoever holds
// one makes another when the object or one of its ManagedClusterSets changes.
type Selection struct {
	all       bool
	names     sets.Set[string]
	selectors []labels.Selector
	missing   []string
}

// SelectionError says why it cannot be read what an object selects.
type SelectionError struct {
	// Reason is one of proxyv1alpha1.ReasonSelectorInvalid and ReasonClusterSetInvalid.
	Reason string
	// Err says to users what is wrong.
	Err error
}

func (e *SelectionError) Error() string { return e.Err.Error() }

func (e *SelectionError) Unwrap() error { return e.Err }

// NewSelection returns the selection of spec.clusters. The function set returns the
// ManagedClusterSet of a name, or nil if there is none; such a set has no clusters, and
// the other terms still select theirs. An error is a *SelectionError: a selector means
// nothing, and a view that has it must serve nothing.
func NewSelection(terms *proxyv1alpha1.FleetViewClusters, set func(name string) *clusterv1beta2.ManagedClusterSet) (*Selection, error) {
	s := &Selection{
		all:   len(terms.ClusterSets) == 0 && terms.Selector == nil && len(terms.Names) == 0,
		names: sets.New(terms.Names...),
	}
	if terms.Selector != nil {
		selector, err := metav1.LabelSelectorAsSelector(terms.Selector)
		if err != nil {
			return nil, &SelectionError{proxyv1alpha1.ReasonSelectorInvalid, fmt.Errorf("reading spec.clusters.selector: %w", err)}
		}
		s.selectors = append(s.selectors, selector)
	}
	for _, name := range terms.ClusterSets {
		found := set(name)
		if found == nil {
			s.missing = append(s.missing, name)
			continue
		}
		selector, err := setSelector(found)
		if err != nil {
			return nil, &SelectionError{proxyv1alpha1.ReasonClusterSetInvalid, err}
		}
		s.selectors = append(s.selectors, selector)
	}
	return s, nil
}

// setSelector selects the clusters of a ManagedClusterSet by their labels.
func setSelector(set *clusterv1beta2.ManagedClusterSet) (labels.Selector, error) {
	switch by := set.Spec.ClusterSelector; by.SelectorType {
	case "", clusterv1beta2.ExclusiveClusterSetLabel:
		return labels.SelectorFromSet(labels.Set{clusterv1beta2.ClusterSetLabel: set.Name}), nil
	case clusterv1beta2.LabelSelector:
		selector, err := metav1.LabelSelectorAsSelector(by.LabelSelector)
		if err != nil {
			return nil, fmt.Errorf("reading the selector of ManagedClusterSet %q: %w", set.Name, err)
		}
		return selector, nil
	default:
		return nil, fmt.Errorf("reading ManagedClusterSet %q: selectorType %q is unknown", set.Name, by.SelectorType)
	}
}

// Selects reports whether a cluster is selected.
func (s *Selection) Selects(cluster string, clusterLabels map[string]string) bool {
	return s.all || s.names.Has(cluster) ||
		slices.ContainsFunc(s.selectors, func(by labels.Selector) bool { return by.Matches(labels.Set(clusterLabels)) })
}

// Of returns the names of the selected clusters among clusters, which are names and
// labels. The result is sorted.
func (s *Selection) Of(clusters iter.Seq2[string, map[string]string]) []string {
	var selected []string
	for name, clusterLabels := range clusters {
		if s.Selects(name, clusterLabels) {
			selected = append(selected, name)
		}
	}
	slices.Sort(selected)
	return selected
}

// MissingSets returns the names of the ManagedClusterSets of the terms that do not exist.
func (s *Selection) MissingSets() []string { return slices.Clone(s.missing) }

// namedSelector is that of a ManagedClusterSet.
type namedSelector struct {
	set string
	by  labels.Selector
}

// selectorsOf are those of the named sets, in their order. OCM's own sets, default and global, are
// like any other. A set that is not there, or whose selector means nothing, has no clusters.
func selectorsOf(sets []string, find func(name string) *clusterv1beta2.ManagedClusterSet) (selectors []namedSelector) {
	for _, name := range sets {
		if set := find(name); set != nil {
			if by, err := setSelector(set); err == nil {
				selectors = append(selectors, namedSelector{name, by})
			}
		}
	}
	return selectors
}

// setsOf are the sets that a cluster with these labels is in.
func setsOf(selectors []namedSelector, clusterLabels map[string]string) (in []string) {
	for _, selector := range selectors {
		if selector.by.Matches(labels.Set(clusterLabels)) {
			in = append(in, selector.set)
		}
	}
	return in
}
