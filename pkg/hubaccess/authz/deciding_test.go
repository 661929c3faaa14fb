package authz

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"open-cluster-management.io/cluster-proxy/test/testkit/hubapi"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// deciding asks a hub without a network about rights, as requests do, caches included.
type deciding struct {
	t          *testing.T
	api        *hubapi.Local
	authorizer *Authorizer
	sets       fakeSets
}

// fakeSets has the clusters of each ManagedClusterSet.
type fakeSets map[string][]string

func (f *fakeSets) Sets() ([]string, error) { return slices.Collect(maps.Keys(*f)), nil }
func (f *fakeSets) Containing(sets []string) func(cluster string) []string {
	return func(cluster string) []string {
		return slices.DeleteFunc(slices.Clone(sets), func(set string) bool { return !slices.Contains((*f)[set], cluster) })
	}
}

func startDeciding(t *testing.T) *deciding {
	t.Helper()
	api, client := hubapi.NewLocal(t)
	d := &deciding{t: t, api: api}
	var err error
	if d.authorizer, err = NewAuthorizer(client, hubapi.StartGrace(t, client), &d.sets); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *deciding) allowed(name string) bool {
	decision, _, _ := d.authorizer.Authorize(d.t.Context(), Right{Verb: "get"}.OfCluster(&user.DefaultInfo{Name: name}, "cluster1"))
	return decision == authorizer.DecisionAllow
}

// TestRevokedWithinTenSeconds takes a right away from somebody who uses it all the time.
func TestRevokedWithinTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startDeciding(t)
		d.api.Allow("jane get clusters/proxy cluster1")
		if !d.allowed("jane") {
			t.Fatal("jane may not")
		}
		d.api.Set(func(h *hubapi.Hub) { h.Rules = nil })
		revoked := time.Now()
		for d.allowed("jane") {
			if time.Since(revoked) > decisionTTL {
				t.Fatalf("allowed after %v", time.Since(revoked))
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("gone after %v", time.Since(revoked))
	})
}

// TestRightsWhileTheHubIsGone has rights in an outage of the hub.
func TestRightsWhileTheHubIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startDeciding(t)
		d.api.Allow("* get clusters/proxy cluster1")
		if !d.allowed("jane") {
			t.Fatal("jane may not")
		}
		d.api.Set(func(h *hubapi.Hub) { h.Down = true })
		failed := 0
		for began := time.Now(); time.Since(began) < 9*time.Minute+50*time.Second; time.Sleep(5 * time.Second) {
			if !d.allowed("jane") {
				failed++
			}
		}
		if failed > 0 {
			t.Errorf("%d requests of a user with the right failed", failed)
		}
		if d.allowed("eve") {
			t.Error("somebody may whom the hub was not asked about")
		}
		time.Sleep(25 * time.Second)
		if d.allowed("jane") {
			t.Error("the grace does not end")
		}
		d.api.Set(func(h *hubapi.Hub) { h.Down = false })
		time.Sleep(2 * time.Second)
		if !d.allowed("jane") {
			t.Error("jane may not when the hub is back")
		}
	})
}
