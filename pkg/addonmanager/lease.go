package addonmanager

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// leaseName is that of the Lease of the election. Releases before this one, and
// upstream's, hold one with the name of the Deployment and do not give it up: an
// addon manager that came after them would wait until it ends, and so would theirs
// after a rollback. Only one release has rights at a time, whatever Lease it holds:
// the chart binds them to another service account (rbac.yaml).
const leaseName = identity.AddonManager + "-leader"

// addLeaseOwner makes the manager's Deployment the owner of the Lease, so that it
// goes when the chart does: Helm does not know of it. It removes the Lease of
// releases before this one. Nothing depends on either, so an error is only logged.
func addLeaseOwner(mgr ctrl.Manager, namespace string) error {
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		former := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: identity.AddonManager}}
		if err := mgr.GetClient().Delete(ctx, former); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Leaving the Lease of releases before this one")
		}
		err := ownLease(ctx, mgr.GetAPIReader(), mgr.GetClient(), client.ObjectKey{Namespace: namespace, Name: identity.AddonManager})
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Leaving the Lease of the election without an owner")
		}
		return nil
	}))
}

// ownLease gives the Lease its owner; key is the Deployment's.
func ownLease(ctx context.Context, reader client.Reader, writer client.Writer, key client.ObjectKey) error {
	var deployment appsv1.Deployment
	if err := reader.Get(ctx, key, &deployment); apierrors.IsNotFound(err) {
		return nil // run by hand
	} else if err != nil {
		return fmt.Errorf("reading the manager's own Deployment: %w", err)
	}
	key.Name = leaseName
	var lease coordinationv1.Lease
	if err := reader.Get(ctx, key, &lease); err != nil {
		return fmt.Errorf("reading the Lease of the election: %w", err)
	}
	before := lease.DeepCopy()
	lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment", Name: deployment.Name, UID: deployment.UID}}
	if err := writer.Patch(ctx, &lease, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("giving the Lease of the election an owner: %w", err)
	}
	return nil
}
