package proxyagent

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

const (
	// leaseCheck is how soon after a tunnel comes up the Lease is renewed.
	leaseCheck = time.Second
	// leaseRenewal is often enough for OCM's five minutes by far, and for tests
	// that have shortened them.
	leaseRenewal = 10 * time.Second
	// leaseDuration is what OCM multiplies by five.
	leaseDuration = int32(60)
)

// addonLease renews the addon's Lease on the managed cluster while the agent is
// connected. OCM's registration agent reads it and sets ManagedClusterAddOn
// Available.
//
// addon-framework's lease.LeaseUpdater is not used: it looks every 60 s, so a
// cluster would become Available up to a minute after its tunnel did, and it does
// not try again sooner after an error.
type addonLease struct {
	leases    coordinationclient.LeaseInterface
	connected func() bool
}

func (l addonLease) run(ctx context.Context) error {
	var renewed time.Time
	tick := time.NewTicker(leaseCheck)
	defer tick.Stop()
	for {
		if l.connected() && time.Since(renewed) >= leaseRenewal {
			if err := l.renew(ctx); err != nil {
				klog.FromContext(ctx).Info("Renewing the addon's Lease; will try again", "err", err)
			} else {
				renewed = time.Now()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (l addonLease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseRenewal)
	defer cancel()
	now, duration := metav1.NowMicro(), leaseDuration
	lease, err := l.leases.Get(ctx, identity.AddonName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = l.leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName},
			Spec:       coordinationv1.LeaseSpec{RenewTime: &now, LeaseDurationSeconds: &duration},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = &now, &duration
	_, err = l.leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}
