package fleetindexer

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/fake"
)

func TestReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := fake.NewClientset().CoordinationV1().Leases("ns")
		var all []*replicas
		var kill []context.CancelFunc
		ended := make(chan error, 3)
		start := func(name string) {
			r := newReplicas(leases, name)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { ended <- r.run(ctx) }()
			all, kill = append(all, r), append(kill, cancel)
		}
		// owners returns the owner of each cluster; no cluster may have two.
		owners := func() map[string]string {
			found := map[string]string{}
			for i := range 1000 {
				cluster := fmt.Sprint("cluster-", i)
				for _, r := range all {
					if r.owns(cluster) {
						if found[cluster] != "" {
							t.Fatalf("%s belongs to %s and %s", cluster, found[cluster], r.name)
						}
						found[cluster] = r.name
					}
				}
			}
			return found
		}
		start("a")
		start("b")
		if got := owners(); len(got) != 0 {
			t.Errorf("%d clusters have an owner before the replicas know each other", len(got))
		}
		time.Sleep(3 * renewInterval)
		two := owners()
		shares := map[string]int{}
		for _, owner := range two {
			shares[owner]++
		}
		if len(two) != 1000 || shares["a"] < 400 || shares["b"] < 400 {
			t.Errorf("shares are %v", shares)
		}
		start("c")
		time.Sleep(4 * renewInterval)
		moved := 0
		three := owners()
		for cluster, owner := range three {
			if owner == "c" {
				moved++
			} else if two[cluster] != owner {
				t.Errorf("%s went from %s to %s when c came", cluster, two[cluster], owner)
			}
		}
		if len(three) != 1000 || moved < 250 || moved > 420 {
			t.Errorf("%d clusters of %d went to the new replica", moved, len(three))
		}
		// One that is killed renews no Lease and deletes none: a replica that is not run stands for it.
		dead := newReplicas(leases, "d")
		if err := dead.write(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(renewInterval + time.Second)
		if got := len(owners()); got > 850 {
			t.Errorf("%d clusters have an owner while one of four is dead and not missed yet", got)
		}
		time.Sleep(24 * time.Second)
		if got := len(owners()); got != 1000 {
			t.Errorf("%d clusters have an owner 30 s after a replica was killed", got)
		}
		// One that ends deletes its Lease.
		kill[2]()
		all = all[:2]
		time.Sleep(2 * renewInterval)
		if got := owners(); len(got) != 1000 {
			t.Errorf("%d clusters have an owner after a replica ended", len(got))
		}
		kill[0]()
		kill[1]()
		for range 3 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}
