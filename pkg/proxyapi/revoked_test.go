package proxyapi

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// deciding asks a hub without a network, as requests do, caches included.
type deciding struct {
	t          *testing.T
	api        *fakeHubAPI
	callers    *callers
	authorizer authorizer.Authorizer
	lists      *reachable
	// slow is how long the hub takes for an answer.
	slow time.Duration
	// asking is how many questions the hub has now, and most how many it had.
	asking, most atomic.Int64
}

func startDeciding(t *testing.T) *deciding {
	t.Helper()
	d := &deciding{t: t, api: &fakeHubAPI{users: map[string]authenticationv1.UserInfo{}, errors: map[string]string{}}}
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
	o := newOutage(hub, 10*time.Minute, newMetrics(prometheus.NewRegistry()))
	d.callers = &callers{tokens: newTokens(hub, nil, o), strangers: newStrangers()}
	if d.authorizer, err = newAuthorizer(hub, decisionTTL, o); err != nil {
		t.Fatal(err)
	}
	uncached, err := newAuthorizer(hub, 0, o)
	if err != nil {
		t.Fatal(err)
	}
	d.lists = newReachable(uncached)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- o.run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return d
}

func (d *deciding) set(change func(*fakeHubAPI)) {
	d.api.mu.Lock()
	defer d.api.mu.Unlock()
	change(d.api)
}

// known is the name of a token's user, or empty.
func (d *deciding) known(token string) string { return d.knownFrom("192.0.2.1", token) }

func (d *deciding) knownFrom(address, token string) string {
	r := httptest.NewRequest(http.MethodGet, "/cluster1/version", nil)
	r.RemoteAddr = net.JoinHostPort(address, "1")
	r.Header.Set("Authorization", "Bearer "+token)
	u, _, err := d.callers.authenticate(r)
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
		d.api.user("token", "jane")
		d.api.allow("jane get clusters/proxy cluster1")
		if d.known("token") != "jane" || !d.allowed("jane") {
			t.Fatal("jane is not let in")
		}
		d.set(func(a *fakeHubAPI) { delete(a.users, "token"); a.rules = nil })
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
		d.api.user("token", "jane")
		d.api.user("revoked", "bob")
		d.api.allow("* get clusters/proxy cluster1")
		if d.known("token") != "jane" || !d.allowed("jane") || d.known("revoked") != "bob" {
			t.Fatal("jane and bob are not let in")
		}
		d.set(func(a *fakeHubAPI) { delete(a.users, "revoked") })
		time.Sleep(tokenTTL + time.Second)
		if d.known("token") != "jane" || !d.allowed("jane") || d.known("revoked") != "" {
			t.Fatal("the hub is not asked again")
		}
		// foreign reports whether a token is left to the cluster.
		foreign := func(token string) bool {
			r := httptest.NewRequest(http.MethodGet, "/cluster1/version", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			u, credential, err := d.callers.authenticate(r)
			return u == nil && credential != "" && err == nil
		}
		if !foreign("of-a-cluster") {
			t.Fatal("a token that the hub does not know is not left to the cluster")
		}
		d.set(func(a *fakeHubAPI) { a.down = true })
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
		d.set(func(a *fakeHubAPI) { a.down = false })
		time.Sleep(2 * time.Second)
		if d.known("token") != "jane" || !d.allowed("jane") {
			t.Error("jane is not let in when the hub is back")
		}
	})
}
