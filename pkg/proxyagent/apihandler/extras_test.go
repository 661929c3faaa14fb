package apihandler

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
)

// cloudExtras are what the authenticators of clouds and distributions add to a user, as a
// front proxy of the hub names them.
var cloudExtras = map[string][]string{
	"EKS":     {"accessKeyId", "arn", "canonicalArn", "principalId", "sessionName", "sigs.k8s.io/aws-iam-authenticator/principalId"},
	"GKE":     {"user-assertion.cloud.google.com", "iam.gke.io/user-assertion"},
	"AKS":     {"oid"},
	"Rancher": {"principalid", "username", "requesttokenid", "requesthost"},
}

// onlyGranted is a kube-apiserver that refuses a user with extras beyond granted, as one
// does whose RBAC grants the agent no others.
func onlyGranted(t *testing.T, granted ...string) (_ http.HandlerFunc, asserted chan []string) {
	asserted = make(chan []string, 1)
	return func(w http.ResponseWriter, r *http.Request) {
		var keys []string
		for name := range r.Header {
			if key, ok := strings.CutPrefix(name, "Impersonate-Extra-"); ok {
				key = strings.ReplaceAll(strings.ToLower(key), "%2f", "/")
				if keys = append(keys, key); !slices.Contains(granted, key) {
					w.WriteHeader(http.StatusForbidden)
					return
				}
			}
		}
		slices.Sort(keys)
		asserted <- keys
	}, asserted
}

// TestExtrasOfClouds sends users with the extras of each cloud's authenticator: the agent
// leaves out those that it may not assert, and counts them by key.
func TestExtrasOfClouds(t *testing.T) {
	const scopes = "scopes.authorization.openshift.io"
	for cloud, keys := range cloudExtras {
		for _, onHub := range []bool{false, true} {
			server, asserted := onlyGranted(t, agentapi.ExtraKeys...)
			f := start(t, server, Access{OnHub: onHub})
			header := http.Header{"X-Remote-User": {"jane"}, "X-Remote-Extra-" + http.CanonicalHeaderKey(scopes): {"user:info"}}
			for _, key := range keys {
				header.Set("X-Remote-Extra-"+strings.ReplaceAll(key, "/", "%2f"), "a value")
			}
			if code, message := do(t, f, http.MethodGet, "/api", header); code != http.StatusOK {
				t.Errorf("%s, on the hub %t: answered %d %s, want 200", cloud, onHub, code, message)
				continue
			}
			if got := <-asserted; !slices.Equal(got, []string{scopes}) {
				t.Errorf("%s, on the hub %t: asserted %q, want %q alone", cloud, onHub, got, scopes)
			}
		}
	}
}

// TestExtrasOfServiceAccounts sends all extras that Kubernetes gives a service account: agents assert what says where the
// token comes from, and leave out what Kubernetes 1.37 says of tokens for webhooks, which attest something to the hub's
// webhooks alone. A version with another key fails here, and wants a decision.
func TestExtrasOfServiceAccounts(t *testing.T) {
	info := &serviceaccount.ServiceAccountInfo{AttestationAdmissionReviewAPIGroups: []string{"apps"}}
	for _, field := range reflect.ValueOf(info).Elem().Fields() {
		if field.Kind() == reflect.String {
			field.SetString("x")
		}
	}
	want := slices.Sorted(slices.Values(agentapi.ExtraKeys[:5]))
	leftOut := []string{
		"attestation.authentication.kubernetes.io/admissionReviewAPIGroups",
		"authentication.kubernetes.io/mutatingwebhookconfiguration-name", "authentication.kubernetes.io/mutatingwebhookconfiguration-uid",
		"authentication.kubernetes.io/validatingwebhookconfiguration-name", "authentication.kubernetes.io/validatingwebhookconfiguration-uid",
	}
	header := http.Header{"X-Remote-User": {"system:serviceaccount:ns:sa"}}
	extra := info.UserInfo().GetExtra()
	for key, values := range extra {
		header["X-Remote-Extra-"+http.CanonicalHeaderKey(strings.ReplaceAll(key, "/", "%2f"))] = values
	}
	if got := slices.Sorted(maps.Keys(extra)); !slices.Equal(got, slices.Sorted(slices.Values(slices.Concat(want, leftOut)))) {
		t.Errorf("a service account has the extras %q, want %q asserted and %q left out", got, want, leftOut)
	}
	server, asserted := onlyGranted(t, agentapi.ExtraKeys...)
	f := start(t, server, Access{})
	if code, message := do(t, f, http.MethodGet, "/api", header); code != http.StatusOK {
		t.Fatalf("answered %d %s, want 200", code, message)
	}
	if got := <-asserted; !slices.Equal(got, want) {
		t.Errorf("asserted %q, want %q", got, want)
	}
}

// TestExtrasThatRestrict sends users whose tokens are good for less than the user is. Without the
// extra that says so the kube-apiserver would allow everything, so the request is refused.
func TestExtrasThatRestrict(t *testing.T) {
	for key, listed := range map[string][]string{"authentication.kcp.io/scopes": nil, "example.org/Token-Scope": {"example.org/token-scope"}} {
		for _, onHub := range []bool{false, true} {
			server, _ := onlyGranted(t)
			f := start(t, server, Access{OnHub: onHub})
			header := http.Header{"X-Remote-User": {"jane"}, "X-Remote-Extra-" + http.CanonicalHeaderKey(strings.ReplaceAll(key, "/", "%2f")): {"a:view"}}
			if code, message := do(t, f, http.MethodGet, "/api", header); code != http.StatusForbidden || !strings.Contains(message, strings.ToLower(key)) || !strings.Contains(message, "extraKeys") {
				t.Errorf("%s, on the hub %t: answered %d %s, want 403 that names the key and extraKeys", key, onHub, code, message)
			}
			if listed == nil {
				continue
			}
			server, asserted := onlyGranted(t, listed...)
			f = start(t, server, Access{OnHub: onHub, ExtraKeys: listed})
			if code, message := do(t, f, http.MethodGet, "/api", header); code != http.StatusOK {
				t.Errorf("%s, on the hub %t, listed: answered %d %s, want 200", key, onHub, code, message)
			} else if got := <-asserted; !slices.Equal(got, listed) {
				t.Errorf("%s, on the hub %t: asserted %q, want %q", key, onHub, got, listed)
			}
		}
	}
}

// TestExtrasThatAreListed asserts what the customized variable extraKeys lists, for users of
// the hub and of the identity provider.
func TestExtrasThatAreListed(t *testing.T) {
	provider := &user.DefaultInfo{Name: "jane", Extra: map[string][]string{"oid": {"1"}, "arn": {"2"}}}
	for from, header := range map[string]http.Header{
		"the hub":      {"X-Remote-User": {"jane"}, "X-Remote-Extra-Oid": {"1"}, "X-Remote-Extra-Arn": {"2"}},
		"the provider": {"Authorization": {"Bearer x"}},
	} {
		server, asserted := onlyGranted(t, "oid")
		f := start(t, server, Access{ExtraKeys: []string{"oid"}, OIDC: (*oneName)(provider)})
		if code, message := do(t, f, http.MethodGet, "/api", header); code != http.StatusOK {
			t.Errorf("a user of %s: answered %d %s, want 200", from, code, message)
		} else if got := <-asserted; !slices.Equal(got, []string{"oid"}) {
			t.Errorf("a user of %s: asserted %q, want oid alone", from, got)
		}
	}
}

// TestExtrasAreCountedByKey bounds the keys that the metric has: users choose them where
// they may impersonate.
func TestExtrasAreCountedByKey(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry())
	a := Access{metrics: m}
	for range 2 {
		if _, err := a.assertable(map[string][]string{"arn": {"1"}, agentapi.ExtraKeys[0]: {"2"}}); err != nil {
			t.Error(err)
		}
	}
	if got := testutil.ToFloat64(m.extrasLeftOut.WithLabelValues("arn")); got != 2 {
		t.Errorf("arn was counted %v times, want 2", got)
	}
	many := map[string][]string{strings.Repeat("long", 100): {"1"}, "\xff": {"1"}}
	for i := range 10 * maxExtraKeys {
		many["key"+strings.Repeat("x", i%50)+string(rune('a'+i%26))+string(rune('a'+i/26))] = nil
	}
	if kept, err := a.assertable(maps.Clone(many)); len(kept) > 0 || err != nil {
		t.Errorf("kept %v, %v, want none", kept, err)
	}
	if got := testutil.CollectAndCount(m.extrasLeftOut); got > maxExtraKeys+1 {
		t.Errorf("the metric has %d keys, want at most %d and others together", got, maxExtraKeys)
	}
}
