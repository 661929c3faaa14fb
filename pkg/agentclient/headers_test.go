package agentclient

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// TestRoundTripAsUser wants the agent to be told of the user whom the caller named, and
// of nobody whom headers name.
func TestRoundTripAsUser(t *testing.T) {
	seen := make(chan http.Header, 1)
	client, _ := start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Clone() }))
	forged := http.Header{"Authorization": {"Bearer hub-token"}, "X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}, "Impersonate-User": {"root"},
		"X_remote_user": {"root"}, "Cluster-Proxy-Service": {"any"}, "X-Forwarded-For": {"192.0.2.1"}, "Sec-Websocket-Protocol": {agentapi.WebSocketToken + "aHVi"}}
	for name, tc := range map[string]struct {
		as   Identity
		want http.Header
	}{
		"a user of the hub": {jane, http.Header{"X-Remote-User": {"jane"}, "X-Remote-Group": {"devs"}}},
		"a caller whom the hub does not know": {Identity{PassThrough: true}, http.Header{"Authorization": {"Bearer hub-token"}, "Impersonate-User": {"root"},
			"Sec-Websocket-Protocol": {agentapi.WebSocketToken + "aHVi"}}},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = forged.Clone()
		resp, err := client.RoundTrip(r, cluster1, tc.as)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		got := <-seen
		got.Del("User-Agent")
		got.Del("Accept-Encoding")
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: headers (-want +got):\n%s", name, diff)
		}
	}
}

// TestCredentialsStay has a user with the extras by which GKE's authenticator hands on a credential
// for Google: the agent is told of all others.
func TestCredentialsStay(t *testing.T) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	extra := map[string][]string{"iam.gke.io/user-assertion": {"secret"}, "User-Assertion.cloud.google.com": {"secret"}, "oid": {"1"}}
	if err := SetHeaders(r, cluster1, Identity{User: &user.DefaultInfo{Name: "jane", Extra: extra}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(http.Header{"X-Remote-User": {"jane"}, "X-Remote-Extra-Oid": {"1"}}, r.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if len(extra) != 3 {
		t.Errorf("the user has extras %v now, want all three", extra)
	}
}

// TestRoundTripWithoutADecision wants a request not to be sent that names no cluster,
// nobody, or a user who cannot be asserted.
func TestRoundTripWithoutADecision(t *testing.T) {
	client, _ := start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%v arrived", r.Header) }))
	var refused *status.Error
	for name, tc := range map[string]struct {
		to   Target
		as   Identity
		want func(error) bool
	}{
		"no cluster":      {Target{}, jane, func(err error) bool { return errors.Is(err, errUndecided) }},
		"nobody":          {cluster1, Identity{}, func(err error) bool { return errors.Is(err, errUndecided) }},
		"blank at an end": {cluster1, Identity{User: &user.DefaultInfo{Name: "jane "}}, func(err error) bool { return errors.As(err, &refused) }},
		"a line's end":    {cluster1, Identity{User: &user.DefaultInfo{Name: "jane", Groups: []string{"a\nb"}}}, func(err error) bool { return errors.As(err, &refused) }},
		"no name":         {cluster1, Identity{User: &user.DefaultInfo{}}, func(err error) bool { return errors.As(err, &refused) }},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := client.RoundTrip(r, tc.to, tc.as); !tc.want(err) {
			t.Errorf("%s: %v, %v", name, resp, err)
		}
	}
}
