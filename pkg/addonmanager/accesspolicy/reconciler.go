package accesspolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"open-cluster-management.io/cluster-proxy/pkg/accesspolicy"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/ownstatus"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/clusters"
)

// Reconciler reconciles the status of AccessPolicies.
type Reconciler struct {
	// Client reads policies and sets from a cache, and writes status.
	Client client.Client
}

// SetupWithManager starts the reconciler with the manager, which may be running already. The hub
// must serve AccessPolicies and ManagedClusterSets.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("accesspolicy").
		For(&v1alpha1.AccessPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&clusterv1beta2.ManagedClusterSet{}, handler.EnqueueRequestsFromMapFunc(r.naming), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}

// naming returns the policies that name a set.
func (r *Reconciler) naming(ctx context.Context, set client.Object) (requests []reconcile.Request) {
	var policies v1alpha1.AccessPolicyList
	if err := r.Client.List(ctx, &policies); err != nil {
		return nil // the cache is not read yet, and every policy comes by itself
	}
	for _, policy := range policies.Items {
		if slices.Contains(policy.Spec.Clusters.ClusterSets, set.GetName()) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: policy.Name}})
		}
	}
	return requests
}

// Reconcile writes the status of one policy.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var policy v1alpha1.AccessPolicy
	if err := r.Client.Get(ctx, request.NamespacedName, &policy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if policy.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	var list clusterv1beta2.ManagedClusterSetList
	if err := r.Client.List(ctx, &list); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing ManagedClusterSets: %w", err)
	}
	sets := map[string]*clusterv1beta2.ManagedClusterSet{}
	for i := range list.Items {
		sets[list.Items[i].Name] = &list.Items[i]
	}
	status := v1alpha1.AccessPolicyStatus{ObservedGeneration: policy.Generation, Conditions: slices.Clone(policy.Status.Conditions)}
	meta.SetStatusCondition(&status.Conditions, compiled(&policy, func(name string) *clusterv1beta2.ManagedClusterSet { return sets[name] }))
	if equality.Semantic.DeepEqual(status, policy.Status) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, ownstatus.Apply(ctx, r.Client, v1alpha1.GroupVersion.WithKind("AccessPolicy"), request.NamespacedName, &status)
}

// maxMessage bounds the condition's message, in bytes. A kube-apiserver refuses one of more than 32,768.
const maxMessage = 4 << 10

// compiled returns the condition that says whether a policy means something.
func compiled(policy *v1alpha1.AccessPolicy, set func(name string) *clusterv1beta2.ManagedClusterSet) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionTypeAccessPolicyCompiled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccessPolicyCompiled, ObservedGeneration: policy.Generation}
	not := func(reason, message string) {
		condition.Status = metav1.ConditionFalse
		if condition.Message == "" {
			condition.Reason, condition.Message = reason, message
			return
		}
		condition.Message += " " + message
	}
	if _, err := accesspolicy.Compile(policy, nil); err != nil {
		not(v1alpha1.ReasonExpressionInvalid, fmt.Sprintf("The policy %s what it selects until its rules are corrected: %s.", objects(policy.Spec.Mode), strings.ReplaceAll(err.Error(), "\n", "; ")))
	}
	selection, err := clusters.NewSelection(&policy.Spec.Clusters, set)
	switch wrong := (*clusters.SelectionError)(nil); {
	case errors.As(err, &wrong):
		not(wrong.Reason, fmt.Sprintf("The policy selects all clusters until its selection is corrected: %v.", err))
	case err == nil && len(selection.MissingSets()) > 0:
		not(v1alpha1.ReasonClusterSetNotFound, fmt.Sprintf("No ManagedClusterSet %s exists: create it, or remove it from spec.clusters.clusterSets. The policy selects all clusters until then.", strings.Join(selection.MissingSets(), ", ")))
	}
	if len(condition.Message) > maxMessage {
		condition.Message = strings.ToValidUTF8(condition.Message[:maxMessage-len("…")], "") + "…"
	}
	return condition
}

// objects says what a policy of a mode does to a request for which a rule is not true.
func objects(mode v1alpha1.AccessPolicyMode) string {
	switch mode {
	case v1alpha1.ModeWarn:
		return "warns of"
	case v1alpha1.ModeAudit:
		return "annotates in the audit log"
	}
	return "refuses"
}
