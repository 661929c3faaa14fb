package authn

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/outage"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// TestWhyNot has the errors that TokenReviews of kube-apiservers have, with what
// a kube-apiserver puts before those of its authenticators.
func TestWhyNot(t *testing.T) {
	for _, tc := range []struct {
		name, message string
		want          error
	}{
		{"nobody knows it", "invalid bearer token", nil},
		{"another cluster's service account, same issuer", "[invalid bearer token, invalid signature, no keys found]", nil},
		{"the same, before keys were chosen by ID", "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]", nil},
		{"the same, in older versions", "[invalid bearer token, square/go-jose: error in cryptographic primitive]", nil},
		{"the same, of two authenticators", "[invalid bearer token, square/go-jose: error in cryptographic primitive, invalid signature, no keys found]", nil},

		{"no error, so nothing was asked", "", errNoAnswer},
		{"dead webhook", `[invalid bearer token, Post "https://127.0.0.1:1/authenticate?timeout=30s": dial tcp 127.0.0.1:1: connect: connection refused]`, errNoAnswer},
		{"slow webhook", `[invalid bearer token, Post "https://webhook/?timeout=30s": context deadline exceeded]`, errNoAnswer},
		{"webhook without the prefix", `Post "https://webhook": context deadline exceeded`, errNoAnswer},
		{"foreign signature, and a dead webhook", `[invalid bearer token, invalid signature, no keys found, Post "https://webhook": EOF]`, errNoAnswer},
		{"webhook that answers 403, as on EKS", "[invalid bearer token, unknown]", errNoAnswer},
		{"webhook of OpenShift that masks its errors", "[invalid bearer token, token lookup failed]", errNoAnswer},
		{"OIDC issuer not there", "[invalid bearer token, oidc: authenticator not initialized]", errNoAnswer},
		{"OIDC keys not there", `[invalid bearer token, oidc: verify token: failed to verify signature: fetching keys oidc: get keys failed Get "https://issuer/keys": EOF]`, errNoAnswer},
		{"OIDC signature, perhaps by a key that is new", "[invalid bearer token, oidc: verify token: failed to verify signature: failed to verify id token signature]", errNoAnswer},
		{"distributed claims", `[invalid bearer token, oidc: could not expand distributed claims: EOF]`, errNoAnswer},
		{"service accounts cannot be read", "[invalid bearer token, etcdserver: request timed out]", errNoAnswer},
		{"a crash", "[invalid bearer token, authentication crash]", errNoAnswer},
		{"the words within others", "webhook says: invalid bearer token", errNoAnswer},
		{"the words before others", "invalid bearer token, webhook says so", errNoAnswer},
		{"a list without an end", "[invalid bearer token, invalid signature, no keys found", errNoAnswer},
		{"a phrase and more", "[invalid bearer token, invalid signature, no keys found yet]", errNoAnswer},
		{"a list without the kube-apiserver's own", "[invalid signature, no keys found]", errNoAnswer},

		{"expired", "[invalid bearer token, service account token has expired]", outage.ErrNotForUs},
		{"expired, and a dead webhook", `[invalid bearer token, service account token has expired, Post "https://webhook": EOF]`, outage.ErrNotForUs},
		{"not yet", "[invalid bearer token, service account token is not valid yet]", outage.ErrNotForUs},
		{"its pod is gone", "[invalid bearer token, service account token has been invalidated]", outage.ErrNotForUs},
		{"its Secret is gone", "[invalid bearer token, Token has been invalidated]", outage.ErrNotForUs},
		{"its service account is gone", "[invalid bearer token, ServiceAccount a/b has been deleted]", outage.ErrNotForUs},
		{"its service account is gone, another way", `[invalid bearer token, serviceaccounts "b" not found]`, outage.ErrNotForUs},
		{"its service account was made again", "[invalid bearer token, service account UID (a) does not match claim (b)]", outage.ErrNotForUs},
		{"another audience", `[invalid bearer token, token audiences ["vault"] is invalid for the target audiences ["hub"]]`, outage.ErrNotForUs},
		{"expired OIDC", "[invalid bearer token, oidc: verify token: oidc: token is expired (Token Expiry: 2026-01-01 00:00:00 +0000 UTC)]", outage.ErrNotForUs},
		{"OIDC before its time", "[invalid bearer token, oidc: verify token: oidc: current time a before the nbf (not before) time: b]", outage.ErrNotForUs},
		{"another audience, OIDC", `[invalid bearer token, oidc: verify token: oidc: expected audience "hub" got ["vault"]]`, outage.ErrNotForUs},
		{"another audience, OIDC with several", `[invalid bearer token, oidc: verify token: oidc: expected audience in ["a" "b"] got ["vault"]]`, outage.ErrNotForUs},
		{"a claim is missing", "[invalid bearer token, oidc: required claim hd not present in ID token]", outage.ErrNotForUs},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := whyNot(t.Context(), tc.message); !errors.Is(got, tc.want) {
				t.Errorf("whyNot(%q) = %v, want %v", tc.message, got, tc.want)
			}
		})
	}
}

// TestForeignAudience has authenticators that are not asked about a token if the
// review is for an audience that the hub's kube-apiserver does not have.
func TestForeignAudience(t *testing.T) {
	hub := fake.NewClientset()
	hub.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		if review.Spec.Token == "live" && len(review.Spec.Audiences) == 0 {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "jane"}}
		} else {
			review.Status.Error = unknownToken
		}
		return true, review, nil
	})
	v := &reviewer{hub: hub, audiences: []string{"elsewhere"}}
	for token, want := range map[string]error{"live": outage.ErrNotForUs, "foreign": nil, "abcdef.0123456789abcdef": outage.ErrNotForUs} {
		if u, ok, err := v.AuthenticateToken(context.Background(), token); ok || !errors.Is(err, want) {
			t.Errorf("%q: %v, %v, %v, want error %v", token, u, ok, err, want)
		}
	}
}

// TestProxyAPIAudience has a hub that takes a service account's token for the audiences that a
// review names, and for its own if it names none.
func TestProxyAPIAudience(t *testing.T) {
	const own = "https://hub"
	token := func(audiences ...string) string {
		claims, err := json.Marshal(map[string]any{"aud": audiences})
		if err != nil {
			t.Fatal(err)
		}
		return "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln"
	}
	forProxyAPI, forHub, forBoth, forVault := token(identity.ProxyAPIAudience), token(own), token(own, identity.ProxyAPIAudience), token("vault")
	audiences := map[string][]string{forProxyAPI: {identity.ProxyAPIAudience}, forHub: {own}, forBoth: {own, identity.ProxyAPIAudience}, forVault: {"vault"}}
	hub := fake.NewClientset()
	reviews := 0
	hub.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		reviews++
		wanted := review.Spec.Audiences
		if len(wanted) == 0 {
			wanted = []string{own}
		}
		review.Status.Error = unknownToken
		for _, audience := range audiences[review.Spec.Token] {
			if slices.Contains(wanted, audience) {
				review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "robot"}, Audiences: []string{audience}}
			} else if !review.Status.Authenticated {
				review.Status.Error = `[invalid bearer token, token audiences ["a"] is invalid for the target audiences ["b"]]`
			}
		}
		return true, review, nil
	})
	for _, tc := range []struct {
		name, token string
		audiences   []string
		wantUser    bool
		wantErr     error
		wantReviews int
	}{
		{"the proxy API", forProxyAPI, nil, true, nil, 1},
		{"the proxy API, with --api-audiences", forProxyAPI, []string{"elsewhere"}, true, nil, 1},
		{"the hub", forHub, nil, true, nil, 1},
		{"the hub and the proxy API", forBoth, nil, true, nil, 1},
		{"another", forVault, nil, false, outage.ErrNotForUs, 1},
		{"the hub, with --api-audiences", forHub, []string{"elsewhere"}, false, outage.ErrNotForUs, 1},
		{"the proxy API, of another cluster", token(identity.ProxyAPIAudience, "there"), nil, false, nil, 2},
		{"no list", "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"aud":{}}`)) + ".c2ln", nil, false, nil, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reviews = 0
			v := &reviewer{hub: hub, audiences: tc.audiences}
			_, ok, err := v.AuthenticateToken(t.Context(), tc.token)
			if ok != tc.wantUser || !errors.Is(err, tc.wantErr) || reviews != tc.wantReviews {
				t.Errorf("a user: %v, error %v, %d reviews; want %v, %v, %d", ok, err, reviews, tc.wantUser, tc.wantErr, tc.wantReviews)
			}
		})
	}
}
