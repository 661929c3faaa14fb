package proxyagent

import (
	"context"
	"encoding/json"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

const (
	// leaseCheck is how soon after a tunnel comes up the Lease is renewed.
	leaseCheck = time.Second
	// leaseRenewal is often enough for OCM's five minutes by far. Each is a write of the
	// managed cluster's etcd.
	leaseRenewal = 30 * time.Second
	// renewTimeout is how long a renewal may take.
	renewTimeout = 10 * time.Second
	// leaseDuration is what OCM multiplies by five.
	leaseDuration = int32(60)
)

// addonLease renews the addon's Lease on the managed cluster while the agent is
// connected. OCM's registration agent reads it and sets ManagedClusterAddOn
// Available.
//
// addon-framework's lease.LeaseUpdater is not used: it looks every 60 s, so a
// cluster would become Available up to a minute after its tunnel did, and it does
// not try again sooner after an error. After errors in a row this one has a growing pause.
type addonLease struct {
	leases    coordinationclient.LeaseInterface
	connected func() bool
	failures  int // in a row
}

func (l *addonLease) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		timer.Reset(l.renewIfConnected(ctx))
	}
}

// renewIfConnected returns how long the next renewal has time.
func (l *addonLease) renewIfConnected(ctx context.Context) time.Duration {
	if !l.connected() {
		return leaseCheck
	}
	if err := l.renew(ctx); err != nil {
		l.failures++
		again := leaseCheck + dial.Jitter(leaseCheck, leaseRenewal)(l.failures)
		klog.FromContext(ctx).Error(err, "Renewing the addon's Lease; will try again", "after", again)
		return again
	}
	l.failures = 0
	return leaseRenewal
}

// renew is one request, which cannot conflict with those of the cluster's other agents.
func (l *addonLease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	now, duration := metav1.NowMicro(), leaseDuration
	spec := coordinationv1.LeaseSpec{RenewTime: &now, LeaseDurationSeconds: &duration}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	_, err = l.leases.Patch(ctx, identity.AddonName, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = l.leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName}, Spec: spec}, metav1.CreateOptions{})
	}
	return err
}
