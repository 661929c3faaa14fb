package proxyagent

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

func TestLeaseIsRenewedOnlyWithATunnel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fake.NewClientset()
		leases := cluster.CoordinationV1().Leases("ns")
		var up atomic.Bool
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- (&addonLease{leases: leases, connected: up.Load}).run(ctx) }()

		time.Sleep(time.Minute)
		synctest.Wait()
		if _, err := leases.Get(ctx, identity.AddonName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("without a tunnel there is a Lease: %v", err)
		}

		up.Store(true)
		time.Sleep(2 * leaseCheck)
		synctest.Wait()
		lease, err := leases.Get(ctx, identity.AddonName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		first := lease.Spec.RenewTime.Time

		cluster.ClearActions()
		time.Sleep(time.Minute)
		synctest.Wait()
		var requests []string
		for _, action := range cluster.Actions() {
			requests = append(requests, action.GetVerb())
		}
		if want := []string{"patch", "patch"}; !slices.Equal(requests, want) {
			t.Errorf("in a minute the managed cluster is asked to %q, want %q", requests, want)
		}
		if lease, err = leases.Get(ctx, identity.AddonName, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if age := time.Since(lease.Spec.RenewTime.Time); age > leaseRenewal+leaseCheck {
			t.Errorf("with a tunnel the Lease was last renewed %s ago", age)
		}
		if !lease.Spec.RenewTime.After(first) {
			t.Error("the Lease was not renewed")
		}

		up.Store(false)
		lost := time.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		if lease, err = leases.Get(ctx, identity.AddonName, metav1.GetOptions{}); err != nil || lease.Spec.RenewTime.After(lost) {
			t.Errorf("the Lease was renewed at %v, after the tunnel was lost at %v (%v)", lease.Spec.RenewTime, lost, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestLeaseThatIsRefused has a managed cluster that refuses each renewal: it is asked more and
// more seldom.
func TestLeaseThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := fake.NewClientset()
		asked := 0
		cluster.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			asked++
			return true, nil, apierrors.NewInternalError(errors.New("etcd is full"))
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		lease := &addonLease{leases: cluster.CoordinationV1().Leases("ns"), connected: func() bool { return true }}
		go func() { done <- lease.run(ctx) }()
		time.Sleep(10 * time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if asked < 20 || asked > 120 {
			t.Errorf("in ten minutes the managed cluster was asked %d times, want 20 to 120", asked)
		}
	})
}
