package fleetindexer

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
)

const (
	// renewInterval is how often a replica renews its Lease and reads the others'.
	renewInterval = 5 * time.Second
	// leaseExpiry is how long after the last renewal a replica counts as live. Times are those of the reader,
	// so clocks need not agree.
	leaseExpiry = 15 * time.Second
	// forgetAfter is when the Lease of a replica that ended without deleting it is deleted.
	forgetAfter = 10 * time.Minute
	// leaseTimeout bounds the requests of one renewal.
	leaseTimeout = 4 * time.Second
	// replicaLabel is on the Leases of replicas.
	replicaLabel = "proxy.open-cluster-management.io/fleet-index-replica"
)

// replicas shares clusters among the replicas that have a Lease.
type replicas struct {
	leases coordinationclient.LeaseInterface
	name   string
	// joined is when the first renewal was made, and seen has the Leases; both belong to run.
	joined time.Time
	seen   map[string]seenLease

	mu sync.RWMutex
	// live are the replicas; nil until the others have seen this one.
	live []string
}

// seenLease is a Lease's time of renewal, and when it was first read.
type seenLease struct {
	renewed metav1.MicroTime
	at      time.Time
}

func newReplicas(leases coordinationclient.LeaseInterface, name string) *replicas {
	return &replicas{leases: leases, name: name, seen: map[string]seenLease{}}
}

// owns reports whether a cluster is this replica's: of all live ones, it has the highest hash with it.
// A replica that comes or goes moves its own clusters alone.
func (r *replicas) owns(cluster string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	owner, highest := "", uint64(0)
	for _, name := range r.live {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(cluster + "/" + name)) // it never fails
		if sum := mix(hash.Sum64()); owner == "" || sum > highest {
			owner, highest = name, sum
		}
	}
	return owner == r.name && owner != ""
}

// mix is the finalizer of splitmix64: FNV alone orders names that differ at their end alike for all clusters.
func mix(h uint64) uint64 {
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}

// run renews the Lease until ctx is done, and then deletes it, so that the others need not wait.
func (r *replicas) run(ctx context.Context) error {
	tick := time.NewTicker(renewInterval)
	defer tick.Stop()
	for {
		if err := r.renew(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to renew this replica's Lease; will try again")
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTimeout)
			defer cancel()
			if err := r.leases.Delete(last, r.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				klog.FromContext(ctx).Error(err, "Failed to delete this replica's Lease; the others wait until it expires")
			}
			return nil
		case <-tick.C:
		}
	}
}

// renew renews the Lease and reads those of the others. After an error who is live stays as it was: while the
// hub cannot be asked, no replica can have come.
func (r *replicas) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	now := time.Now()
	if err := r.write(ctx, now); err != nil {
		return fmt.Errorf("renewing Lease %q: %w", r.name, err)
	}
	if r.joined.IsZero() {
		r.joined = now
	}
	list, err := r.leases.List(ctx, metav1.ListOptions{LabelSelector: replicaLabel})
	if err != nil {
		return fmt.Errorf("listing the Leases of replicas: %w", err)
	}
	live := r.look(ctx, list.Items, now)
	// The others have renewed theirs, and read this one, before it takes any cluster.
	if now.Sub(r.joined) < 2*renewInterval {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.live, live) {
		klog.FromContext(ctx).Info("Replicas share the clusters", "replicas", live)
	}
	r.live = live
	return nil
}

func (r *replicas) write(ctx context.Context, now time.Time) error {
	seconds := int32(leaseExpiry / time.Second)
	renewed := metav1.NewMicroTime(now)
	spec := coordinationv1.LeaseSpec{HolderIdentity: &r.name, RenewTime: &renewed, LeaseDurationSeconds: &seconds}
	lease, err := r.leases.Get(ctx, r.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = r.leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: r.name, Labels: map[string]string{replicaLabel: ""}}, Spec: spec}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec = spec
	_, err = r.leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// look returns the replicas that are live, in order.
func (r *replicas) look(ctx context.Context, leases []coordinationv1.Lease, now time.Time) (live []string) {
	before := r.seen
	r.seen = map[string]seenLease{}
	for _, lease := range leases {
		if lease.Spec.RenewTime == nil {
			continue
		}
		one := seenLease{*lease.Spec.RenewTime, now}
		if former, ok := before[lease.Name]; ok && former.renewed.Equal(&one.renewed) {
			one = former
		}
		r.seen[lease.Name] = one
		switch age := now.Sub(one.at); {
		case age < leaseExpiry:
			live = append(live, lease.Name)
		case age >= forgetAfter:
			_ = r.leases.Delete(ctx, lease.Name, metav1.DeleteOptions{}) // another time, or by another replica
		}
	}
	slices.Sort(live)
	return live
}
