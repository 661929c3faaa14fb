package hubaccess

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/testkit/hubapi"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// deciding asks a hub without a network, as requests do, caches included.
type deciding struct {
	t             *testing.T
	api           *hubapi.Hub
	authenticator *Authenticator
	authorizer    *Authorizer
	// slow is how long the hub takes for an answer.
	slow time.Duration
	// asking is how many questions the hub has now, and most how many it had.
	asking, most atomic.Int64
	sets         fakeSets
}

// fakeSets has the clusters of each ManagedClusterSet.
type fakeSets map[string][]string

func (f *fakeSets) Sets() ([]string, error) { return slices.Collect(maps.Keys(*f)), nil }
func (f *fakeSets) SetsOf(cluster string) (sets []string) {
	for set, clusters := range *f {
		if slices.Contains(clusters, cluster) {
			sets = append(sets, set)
		}
	}
	return sets
}

func startDeciding(t *testing.T) *deciding {
	t.Helper()
	d := &deciding{t: t, api: hubapi.New()}
	hub, err := kubernetes.NewForConfig(&rest.Config{Host: "http://hub", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if err := r.Context().Err(); err != nil {
				return nil, err
			}
			if now := d.asking.Add(1); now > d.most.Load() {
				d.most.Store(now)
			}
			defer d.asking.Add(-1)
			time.Sleep(d.slow)
			answer := httptest.NewRecorder()
			d.api.ServeHTTP(answer, r)
			return answer.Result(), nil
		})})
	if err != nil {
		t.Fatal(err)
	}
	o := NewOutage(hub, 10*time.Minute, prometheus.NewGauge(prometheus.GaugeOpts{Name: "outage"}), prometheus.NewCounter(prometheus.CounterOpts{Name: "answers"}))
	d.authenticator = &Authenticator{tokens: newTokens(hub, nil, o), limiter: newRateLimiter()}
	if d.authorizer, err = NewAuthorizer(hub, o, &d.sets); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- o.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return d
}

// known is the name of a token's user, or empty.
func (d *deciding) known(token string) string { return d.knownFrom("192.0.2.1", token) }

func (d *deciding) knownFrom(address, token string) string {
	r := httptest.NewRequest(http.MethodGet, "/cluster1/version", nil)
	r.RemoteAddr = net.JoinHostPort(address, "1")
	r.Header.Set("Authorization", "Bearer "+token)
	u, _, err := d.authenticator.Authenticate(r, "cluster1")
	if u == nil || err != nil {
		return ""
	}
	return u.GetName()
}

func (d *deciding) allowed(name string) bool {
	decision, _, _ := d.authorizer.Authorize(d.t.Context(), reading(name))
	return decision == authorizer.DecisionAllow
}

// TestRevokedWithinTenSeconds takes a token and a right away from somebody who
// uses them all the time.
func TestRevokedWithinTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startDeciding(t)
		d.api.User("token", "jane")
		d.api.Allow("jane get clusters/proxy cluster1")
		if d.known("token") != "jane" || !d.allowed("jane") {
			t.Fatal("jane is not let in")
		}
		d.api.Set(func(h *hubapi.Hub) { delete(h.Users, "token"); h.Rules = nil })
		revoked := time.Now()
		for d.known("token") != "" || d.allowed("jane") {
			if time.Since(revoked) > tokenTTL {
				t.Fatalf("token known: %q, allowed: %v, after %v", d.known("token"), d.allowed("jane"), time.Since(revoked))
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("gone after %v", time.Since(revoked))
	})
}

// TestHubGoneForTenMinutes has the whole of authentication and authorization in
// an outage of the hub.
func TestHubGoneForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startDeciding(t)
		d.api.User("token", "jane")
		d.api.User("revoked", "bob")
		d.api.Allow("* get clusters/proxy cluster1")
		if d.known("token") != "jane" || !d.allowed("jane") || d.known("revoked") != "bob" {
			t.Fatal("jane and bob are not let in")
		}
		d.api.Set(func(h *hubapi.Hub) { delete(h.Users, "revoked") })
		time.Sleep(tokenTTL + time.Second)
		if d.known("token") != "jane" || !d.allowed("jane") || d.known("revoked") != "" {
			t.Fatal("the hub is not asked again")
		}
		// foreign reports whether a token is left to the cluster.
		foreign := func(token string) bool {
			r := httptest.NewRequest(http.MethodGet, "/cluster1/version", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			u, credential, err := d.authenticator.Authenticate(r, "cluster1")
			return u == nil && credential != "" && err == nil
		}
		if !foreign("of-a-cluster") {
			t.Fatal("a token that the hub does not know is not left to the cluster")
		}
		d.api.Set(func(h *hubapi.Hub) { h.Down = true })
		if foreign("another") {
			t.Error("a token that the hub was not asked about is left to the cluster")
		}
		failed := 0
		for began := time.Now(); time.Since(began) < 9*time.Minute+50*time.Second; time.Sleep(5 * time.Second) {
			if d.known("token") != "jane" || !d.allowed("jane") || !foreign("of-a-cluster") {
				failed++
			}
		}
		if failed > 0 {
			t.Errorf("%d requests of a known user failed", failed)
		}
		if d.known("revoked") != "" || d.allowed("eve") {
			t.Error("somebody is let in whom the hub did not let in last")
		}
		time.Sleep(25 * time.Second)
		if d.known("token") != "" || d.allowed("jane") {
			t.Error("the grace does not end")
		}
		d.api.Set(func(h *hubapi.Hub) { h.Down = false })
		time.Sleep(2 * time.Second)
		if d.known("token") != "jane" || !d.allowed("jane") {
			t.Error("jane is not let in when the hub is back")
		}
	})
}
