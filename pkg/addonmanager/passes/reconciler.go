package passes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// Reconciler makes the accounts of Passes, and deletes Passes that have expired.
type Reconciler struct {
	// Client reads Passes from a cache, deletes them, and makes accounts.
	Client client.Client
}

// SetupWithManager starts the reconciler with the manager, which may be running already. The
// hub must serve Passes.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("passes").For(&v1alpha1.Pass{}).Complete(r)
}

// Reconcile deletes one Pass if it has expired. Otherwise it makes the Pass's account, and comes again when
// the Pass will have expired.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var pass v1alpha1.Pass
	if err := r.Client.Get(ctx, request.NamespacedName, &pass); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if pass.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	if left := time.Until(pass.Spec.Expires.Time); left > 0 {
		return ctrl.Result{RequeueAfter: left}, r.makeAccount(ctx, &pass)
	}
	now, err := r.hubTime(ctx)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("asking the hub whether pass %q has expired: %w", pass.Name, err)
	}
	if left := pass.Spec.Expires.Sub(now); left > 0 {
		ctrl.LoggerFrom(ctx).Info("Keeping a pass: this process's clock is ahead of the hub's", "expires", pass.Spec.Expires.Time, "hub", now)
		return ctrl.Result{RequeueAfter: left}, nil
	}
	ctrl.LoggerFrom(ctx).Info("Deleting a pass that has expired", "madeBy", pass.Spec.MadeBy, "expired", pass.Spec.Expires.Time)
	// The cache may be behind: the UID keeps a new pass of the same name.
	err = r.Client.Delete(ctx, &pass, client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{UID: &pass.UID})
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("deleting pass %q: %w", pass.Name, err)
	}
	return ctrl.Result{}, nil
}

// hubTime is the time of the hub's kube-apiserver, which dates what it is asked to make and does not. A pass that a
// clock of ours deletes is gone for good, and the clock may have jumped.
func (r *Reconciler) hubTime(ctx context.Context) (time.Time, error) {
	dated := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: identity.PassNamespace, GenerateName: "time-"}}
	if err := r.Client.Create(ctx, dated, client.DryRunAll); err != nil {
		return time.Time{}, err
	}
	return dated.CreationTimestamp.Time, nil
}

// makeAccount makes the service account of a Pass if it is not there. If the Pass is not there any
// more, of which the cache does not know yet, the garbage collector removes the account.
func (r *Reconciler) makeAccount(ctx context.Context, pass *v1alpha1.Pass) error {
	blocks := true
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: identity.PassNamespace, Name: identity.PassAccount(pass.Name, string(pass.UID)),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Pass", Name: pass.Name, UID: pass.UID, BlockOwnerDeletion: &blocks}},
	}}
	if err := r.Client.Create(ctx, account); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("making the account of pass %q: %w", pass.Name, err)
	}
	return nil
}
