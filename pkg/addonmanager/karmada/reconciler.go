package karmada

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/ownstatus"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/clusters"
)

// Reconciler reconciles the status of KarmadaResourceRegistries.
type Reconciler struct {
	// Client reads registries from a cache, and writes status.
	Client client.Client
}

// SetupWithManager starts the reconciler with the manager, which may be running already. The
// hub must serve KarmadaResourceRegistries.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("karmada").
		For(&v1alpha1.KarmadaResourceRegistry{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}

// Reconcile writes the status of one registry.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var registry v1alpha1.KarmadaResourceRegistry
	if err := r.Client.Get(ctx, request.NamespacedName, &registry); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if registry.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	status := v1alpha1.ResourceRegistryStatus{Conditions: slices.Clone(registry.Status.Conditions)}
	meta.SetStatusCondition(&status.Conditions, valid(&registry))
	if equality.Semantic.DeepEqual(status, registry.Status) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, ownstatus.Apply(ctx, r.Client, v1alpha1.GroupVersion.WithKind("KarmadaResourceRegistry"), request.NamespacedName, &status)
}

// valid returns the condition that says whether a registry can be served.
func valid(registry *v1alpha1.KarmadaResourceRegistry) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionTypeRegistryValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRegistryValid, ObservedGeneration: registry.Generation}
	if _, err := clusters.NewRegistrySelection(&registry.Spec); err != nil {
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonTargetClusterInvalid
		if wrong := (*clusters.SelectionError)(nil); errors.As(err, &wrong) {
			condition.Reason = wrong.Reason
		}
		condition.Message = fmt.Sprintf("The registry serves nothing until it is corrected: %v", err)
	} else if registry.Spec.BackendStore != nil {
		condition.Message = "spec.backendStore is not used: nothing is cached."
	}
	return condition
}
