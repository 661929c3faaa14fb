package fleetview

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/clusters"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// hub is what the status of views depends on.
type hub struct {
	// labels are those of the served clusters, by name.
	labels map[string]map[string]string
	// available holds the condition Available of their addons; one may be missing.
	available map[string]*metav1.Condition
	sets      map[string]*clusterv1beta2.ManagedClusterSet
}

func newHub(clusters []clusterv1.ManagedCluster, addons []addonv1alpha1.ManagedClusterAddOn, sets []clusterv1beta2.ManagedClusterSet) *hub {
	h := &hub{labels: map[string]map[string]string{}, available: map[string]*metav1.Condition{}, sets: map[string]*clusterv1beta2.ManagedClusterSet{}}
	withAddon := map[string]*addonv1alpha1.ManagedClusterAddOn{}
	for i := range addons {
		if addon := &addons[i]; addon.Name == identity.AddonName && addon.DeletionTimestamp == nil {
			withAddon[addon.Namespace] = addon
		}
	}
	for i := range clusters {
		cluster := &clusters[i]
		addon := withAddon[cluster.Name]
		if addon == nil || cluster.DeletionTimestamp != nil || !cluster.Spec.HubAcceptsClient {
			continue
		}
		h.labels[cluster.Name] = cluster.Labels
		h.available[cluster.Name] = meta.FindStatusCondition(addon.Status.Conditions, addonv1alpha1.ManagedClusterAddOnConditionAvailable)
	}
	for i := range sets {
		h.sets[sets[i].Name] = &sets[i]
	}
	return h
}

// statusOf returns the status that a view should have.
func (h *hub) statusOf(view *v1alpha1.FleetView) v1alpha1.FleetViewStatus {
	status := v1alpha1.FleetViewStatus{
		ObservedGeneration: view.Generation,
		Conditions:         slices.Clone(view.Status.Conditions),
	}
	selection, err := clusters.NewSelection(&view.Spec.Clusters, func(name string) *clusterv1beta2.ManagedClusterSet { return h.sets[name] })
	if err == nil {
		h.count(&status, selection.Of(maps.All(h.labels)))
	}
	valid := h.valid(view, selection, err)
	valid.ObservedGeneration = view.Generation
	meta.SetStatusCondition(&status.Conditions, valid)
	return status
}

// count adds the selected clusters to a status.
func (h *hub) count(status *v1alpha1.FleetViewStatus, selected []string) {
	status.Clusters = int32(len(selected))
	for _, name := range selected {
		available := h.available[name]
		if available != nil && available.Status == metav1.ConditionTrue {
			status.Reachable++
			continue
		}
		status.UnreachableCount++
		if len(status.Unreachable) < v1alpha1.MaxUnreachable {
			status.Unreachable = append(status.Unreachable, unreachable(name, available))
		}
	}
}

func unreachable(name string, available *metav1.Condition) v1alpha1.UnreachableCluster {
	if available == nil {
		return v1alpha1.UnreachableCluster{Name: name, Reason: v1alpha1.ReasonAgentNotReported}
	}
	cluster := v1alpha1.UnreachableCluster{Name: name, Reason: available.Reason}
	if !available.LastTransitionTime.IsZero() {
		cluster.Since = available.LastTransitionTime.DeepCopy()
	}
	return cluster
}

// valid returns the condition that says whether a view can be what it asks for.
func (h *hub) valid(view *v1alpha1.FleetView, selection *clusters.Selection, err error) metav1.Condition {
	not := func(reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionTypeFleetViewValid, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	if err != nil {
		reason := v1alpha1.ReasonSelectorInvalid
		if wrong := (*clusters.SelectionError)(nil); errors.As(err, &wrong) {
			reason = wrong.Reason
		}
		return not(reason, fmt.Sprintf("The view serves no cluster until its selector is corrected: %v", err))
	}
	if missing := selection.MissingSets(); len(missing) > 0 {
		return not(v1alpha1.ReasonClusterSetNotFound, fmt.Sprintf("No ManagedClusterSet %s exists: create it, or remove it from spec.clusters.clusterSets. "+
			"The other terms of spec.clusters still select clusters.", strings.Join(missing, ", ")))
	}
	if unlisted := view.Spec.UnlistedResources; unlisted != nil {
		if _, served := h.labels[unlisted.Cluster]; !served {
			return not(v1alpha1.ReasonUnlistedClusterNotServed, fmt.Sprintf("Cluster %q of spec.unlistedResources is not served: accept the ManagedCluster and give it "+
				"the addon %s, or name another cluster.", unlisted.Cluster, identity.AddonName))
		}
	}
	return metav1.Condition{Type: v1alpha1.ConditionTypeFleetViewValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonFleetViewValid}
}
