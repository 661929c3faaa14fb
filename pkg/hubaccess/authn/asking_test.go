package authn

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"open-cluster-management.io/cluster-proxy/test/testkit/hubapi"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// asking asks a hub without a network who calls, as requests do, caches included.
type asking struct {
	api           *hubapi.Local
	authenticator *Authenticator
}

func startAsking(t *testing.T) *asking {
	t.Helper()
	api, client := hubapi.NewLocal(t)
	return &asking{api, &Authenticator{tokens: newTokens(client, nil, hubapi.StartGrace(t, client)), limiter: newRateLimiter()}}
}

// known is the name of a token's user, or empty.
func (a *asking) known(token string) string { return a.knownFrom("192.0.2.1", token) }

func (a *asking) knownFrom(address, token string) string {
	r := httptest.NewRequest(http.MethodGet, "/cluster1/version", nil)
	r.RemoteAddr = net.JoinHostPort(address, "1")
	r.Header.Set("Authorization", "Bearer "+token)
	u, _, err := a.authenticator.Authenticate(r, "cluster1")
	if u == nil || err != nil {
		return ""
	}
	return u.GetName()
}

// TestRevokedTokenWithinTenSeconds takes a token away from somebody who uses it all the time.
func TestRevokedTokenWithinTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startAsking(t)
		a.api.User("token", "jane")
		if a.known("token") != "jane" {
			t.Fatal("jane is not let in")
		}
		a.api.Set(func(h *hubapi.Hub) { delete(h.Users, "token") })
		revoked := time.Now()
		for a.known("token") != "" {
			if time.Since(revoked) > tokenTTL {
				t.Fatalf("token known: %q, after %v", a.known("token"), time.Since(revoked))
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("gone after %v", time.Since(revoked))
	})
}

// TestHubGoneForTenMinutes has the whole of authentication in an outage of the hub.
func TestHubGoneForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startAsking(t)
		a.api.User("token", "jane")
		a.api.User("revoked", "bob")
		if a.known("token") != "jane" || a.known("revoked") != "bob" {
			t.Fatal("jane and bob are not let in")
		}
		a.api.Set(func(h *hubapi.Hub) { delete(h.Users, "revoked") })
		time.Sleep(tokenTTL + time.Second)
		if a.known("token") != "jane" || a.known("revoked") != "" {
			t.Fatal("the hub is not asked again")
		}
		// foreign reports whether a token is left to the cluster.
		foreign := func(token string) bool {
			r := httptest.NewRequest(http.MethodGet, "/cluster1/version", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			u, credential, err := a.authenticator.Authenticate(r, "cluster1")
			return u == nil && credential != "" && err == nil
		}
		if !foreign("of-a-cluster") {
			t.Fatal("a token that the hub does not know is not left to the cluster")
		}
		a.api.Set(func(h *hubapi.Hub) { h.Down = true })
		if foreign("another") {
			t.Error("a token that the hub was not asked about is left to the cluster")
		}
		failed := 0
		for began := time.Now(); time.Since(began) < 9*time.Minute+50*time.Second; time.Sleep(5 * time.Second) {
			if a.known("token") != "jane" || !foreign("of-a-cluster") {
				failed++
			}
		}
		if failed > 0 {
			t.Errorf("%d requests of a known user failed", failed)
		}
		if a.known("revoked") != "" {
			t.Error("somebody is let in whom the hub did not let in last")
		}
		time.Sleep(25 * time.Second)
		if a.known("token") != "" {
			t.Error("the grace does not end")
		}
		a.api.Set(func(h *hubapi.Hub) { h.Down = false })
		time.Sleep(2 * time.Second)
		if a.known("token") != "jane" {
			t.Error("jane is not let in when the hub is back")
		}
	})
}
