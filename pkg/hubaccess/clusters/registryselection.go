package clusters

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// OCM's ClusterClaims that are the fields of a cluster in Karmada. A cluster makes its
// own: they select, and grant nothing.
const (
	claimPlatform = "platform.open-cluster-management.io"
	claimRegion   = "region.open-cluster-management.io"
)

// claims are the ClusterClaims by Karmada's name of the field.
var claims = map[string]string{"provider": claimPlatform, "region": claimRegion}

func claimOf(cluster *clusterv1.ManagedCluster, name string) string {
	for _, claim := range cluster.Status.ClusterClaims {
		if claim.Name == name {
			return claim.Value
		}
	}
	return ""
}

// RegistrySelection decides what of which clusters a registry selects. It is immutable.
type RegistrySelection struct {
	// none is set if the registry is not valid: it selects no cluster.
	none            bool
	names, excluded []string
	labels          labels.Selector
	fields          []proxyv1alpha1.ClusterFieldRequirement
	resources       []RegistryResource
}

// RegistryResource is a resource that a registry selects.
type RegistryResource struct {
	// Group and Kind are what the registry says.
	Group, Kind string
	// Namespace is the one of the objects; empty for all.
	Namespace string
}

// NewRegistrySelection returns the selection of a registry. An error is a *SelectionError.
// The selection is usable all the same: it has the resources that can be read, of no cluster.
func NewRegistrySelection(spec *proxyv1alpha1.ResourceRegistrySpec) (*RegistrySelection, error) {
	target := &spec.TargetCluster
	s := &RegistrySelection{names: target.ClusterNames, excluded: target.ExcludeClusters, labels: labels.Everything()}
	var errs []error
	reason := proxyv1alpha1.ReasonTargetClusterInvalid
	if target.LabelSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(target.LabelSelector)
		if err != nil {
			errs = append(errs, fmt.Errorf("reading spec.targetCluster.labelSelector: %w", err))
		}
		s.labels = selector
	}
	if target.FieldSelector != nil {
		s.fields = target.FieldSelector.MatchExpressions
		for _, requirement := range s.fields {
			if err := checkField(requirement); err != nil {
				errs = append(errs, fmt.Errorf("reading spec.targetCluster.fieldSelector: %w", err))
			}
		}
	}
	if len(errs) == 0 {
		reason = proxyv1alpha1.ReasonResourceSelectorInvalid
	}
	for i, selector := range spec.ResourceSelectors {
		gv, err := schema.ParseGroupVersion(selector.APIVersion)
		if err == nil {
			err = checkKind(gv, selector)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reading spec.resourceSelectors[%d]: %w", i, err))
			continue
		}
		s.resources = append(s.resources, RegistryResource{Group: gv.Group, Kind: selector.Kind, Namespace: selector.Namespace})
	}
	if err := errors.Join(errs...); err != nil {
		s.none = true
		return s, &SelectionError{Reason: reason, Err: err}
	}
	return s, nil
}

// checkField refuses what a hub of OCM cannot tell of its clusters.
func checkField(requirement proxyv1alpha1.ClusterFieldRequirement) error {
	if _, known := claims[requirement.Key]; !known {
		return fmt.Errorf("field %q is not known of clusters: use provider, region, or a labelSelector", requirement.Key)
	}
	if requirement.Operator != "In" && requirement.Operator != "NotIn" {
		return fmt.Errorf("operator %q must be In or NotIn", requirement.Operator)
	}
	return nil
}

func checkKind(gv schema.GroupVersion, selector proxyv1alpha1.RegistrySelector) error {
	if gv.Version == "" {
		return fmt.Errorf("apiVersion %q has no version", selector.APIVersion)
	}
	if reasons := validation.IsDNS1035Label(strings.ToLower(selector.Kind)); len(reasons) > 0 {
		return fmt.Errorf("kind %q is none: %s", selector.Kind, strings.Join(reasons, ", "))
	}
	return nil
}

// Selects reports whether the registry selects a cluster.
func (s *RegistrySelection) Selects(cluster *clusterv1.ManagedCluster) bool {
	if s.none || slices.Contains(s.excluded, cluster.Name) || len(s.names) > 0 && !slices.Contains(s.names, cluster.Name) {
		return false
	}
	for _, requirement := range s.fields {
		value := claimOf(cluster, claims[requirement.Key])
		if slices.Contains(requirement.Values, value) != (requirement.Operator == "In") {
			return false
		}
	}
	return s.labels.Matches(labels.Set(cluster.Labels))
}

// Plurals returns the names that the kind's resource may have. Kubernetes derives them from
// the kind in English, and only discovery knows which it is; but a view must not ask
// clusters what their resources are called, because one could answer that its Pods are
// called secrets. An author of a kind with another plural writes the plural as the kind.
func (r RegistryResource) Plurals() []string {
	kind := strings.ToLower(r.Kind)
	plurals := []string{kind, kind + "s", kind + "es"}
	if stem, ok := strings.CutSuffix(kind, "y"); ok {
		plurals = append(plurals, stem+"ies")
	}
	if stem, ok := strings.CutSuffix(kind, "metrics"); ok && r.Group == "metrics.k8s.io" {
		plurals = append(plurals, stem+"s")
	}
	return plurals
}
