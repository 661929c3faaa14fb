package proxyapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/authn"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// keeping is an agent's handler that keeps what it was sent.
func keeping(seen chan<- *http.Request) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		seen <- r
	})
}

// identityHeaders are those of a request that say who it is from.
func identityHeaders(r *http.Request) map[string][]string {
	found := map[string][]string{}
	for name, values := range r.Header {
		plain := strings.ReplaceAll(strings.ToLower(name), "_", "-")
		for _, prefix := range []string{"authorization", "impersonate-", "x-remote-", "cluster-proxy-", "x-forwarded-", "forwarded", "sec-websocket-protocol"} {
			if strings.HasPrefix(plain, prefix) && plain != "x-forwarded-for" {
				found[name] = values
			}
		}
	}
	return found
}

var asJane = map[string][]string{
	"X-Remote-User": {"jane"}, "X-Remote-Uid": {"uid-of-jane"}, "X-Remote-Group": {"devs", "system:authenticated"},
	"X-Remote-Extra-Example.org%2fwhere": {"here", "there"},
}

func TestUsersOfTheHubAreAsserted(t *testing.T) {
	w := start(t)
	w.api.User("hub-token", "jane", "devs")
	w.api.Allow("jane * clusters/proxy cluster1")
	seen := make(chan *http.Request, 1)
	w.agent("cluster1", keeping(seen), "cluster1")
	client := w.client()
	for name, header := range map[string]http.Header{
		"alone": {},
		"with claims of his own": {
			"X-Remote-User": {"admin"}, "X_remote_user": {"admin"}, "x_remote-Group": {"system:masters"}, "X-Remote-Extra-A": {"b"}, "X-REMOTE-UID": {"0"},
			"Impersonate_user": {"admin"}, "Impersonate-_user": {"x"}, "Cluster-Proxy-Proto": {"http"}, "Cluster_proxy-Service": {"a"}, "Cluster-Proxy-Namespace": {"b"},
			"X-Forwarded-User": {"admin"}, "X_forwarded_user": {"admin"}, "Forwarded": {"for=x"}, "authorization_": {"Bearer x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			header.Set("Authorization", "Bearer hub-token")
			header.Set("Audit-ID", "an-id-of-the-client")
			resp, body := get(t, client, w.url+"/cluster1/api/v1/pods", header)
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("answered %d: %s, want 200", resp.StatusCode, body)
			}
			r := <-seen
			if diff := cmp.Diff(asJane, identityHeaders(r)); diff != "" {
				t.Errorf("headers at the agent (-want +got):\n%s", diff)
			}
			if got := r.Header["Audit-Id"]; len(got) != 1 || got[0] != "an-id-of-the-client" || len(resp.Header["Audit-Id"]) != 1 {
				t.Errorf("Audit-ID %q there, %q in the answer", got, resp.Header["Audit-Id"])
			}
		})
	}
}

// TestRights asks for things that roles do not cover.
func TestRights(t *testing.T) {
	w := start(t)
	w.api.User("viewer", "vera", "viewers")
	w.api.User("user", "jane", "devs")
	w.api.Allow("viewers get clusters/proxy *", "viewers list clusters/proxy *", "viewers watch clusters/proxy *",
		"jane * clusters/proxy cluster1", "jane create clusters/stream cluster1")
	seen := make(chan *http.Request, 1)
	w.agent("cluster1", keeping(seen), "cluster1")
	client := w.client("http/1.1")
	upgrading := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	for _, tc := range []struct {
		name, token, method, path string
		header                    http.Header
		code                      int
		message                   string
	}{
		{name: "list", token: "viewer", path: "/cluster1/api/v1/pods", code: 200},
		{name: "get of no resource", token: "viewer", path: "/cluster1/version", code: 200},
		{name: "head of no resource", token: "viewer", method: http.MethodHead, path: "/cluster1/healthz", code: 200},
		{name: "create as viewer", token: "viewer", method: http.MethodPost, path: "/cluster1/api/v1/namespaces", code: 403, message: `cannot create resource "clusters/proxy"`},
		{name: "self review as viewer", token: "viewer", method: http.MethodPost, path: "/cluster1/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", code: 200},
		{name: "review of others as viewer", token: "viewer", method: http.MethodPost, path: "/cluster1/apis/authorization.k8s.io/v1/subjectaccessreviews", code: 403, message: "cannot create"},
		{name: "token in place of a review as viewer", token: "viewer", method: http.MethodPost, path: "/cluster1/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/x/token", code: 403, message: "cannot create"},
		{name: "post to no resource as viewer", token: "viewer", method: http.MethodPost, path: "/cluster1/x", code: 403, message: "cannot create"},
		{name: "deletecollection as viewer", token: "viewer", method: http.MethodDelete, path: "/cluster1/api/v1/namespaces/a/pods", code: 403, message: "cannot deletecollection"},
		{name: "exec by WebSocket as viewer", token: "viewer", path: "/cluster1/api/v1/namespaces/a/pods/b/exec?command=sh", header: upgrading, code: 403, message: `cannot create resource "clusters/stream"`},
		{name: "upgrade of anything as viewer", token: "viewer", path: "/cluster1/api/v1/pods", header: upgrading, code: 403, message: "clusters/stream"},
		{name: "upgrade that not everybody sees as viewer", token: "viewer", path: "/cluster1/api/v1/pods", header: http.Header{"Upgrade": {"websocket"}}, code: 403, message: "clusters/stream"},
		{name: "exec without an upgrade as viewer", token: "viewer", path: "/cluster1/api/v1/namespaces/a/pods/b/exec?command=sh", code: 403, message: "clusters/stream"},
		{name: "proxy of a pod as viewer", token: "viewer", path: "/cluster1/api/v1/namespaces/a/pods/b/proxy/x", code: 403, message: "clusters/stream"},
		{name: "proxy of a node, with an escape, as viewer", token: "viewer", path: "/cluster1/api/v1/nodes/b/%70roxy/x", code: 403, message: "clusters/stream"},
		{name: "Service as viewer", token: "viewer", path: "/cluster1/api/v1/namespaces/a/services/b/proxy-service/x", code: 403, message: "clusters/stream"},
		{name: "any upgrade as viewer", token: "viewer", path: "/cluster1/apis/x/v1/y/z", header: upgrading, code: 403, message: "clusters/stream"},
		{name: "everything as user", token: "user", method: http.MethodDelete, path: "/cluster1/api/v1/pods", code: 200},
		{name: "proxy of a pod as user", token: "user", path: "/cluster1/api/v1/namespaces/a/pods/b/proxy/x", code: 200},
		{name: "another cluster", token: "user", path: "/cluster2/version", code: 403, message: `"cluster2" is forbidden`},
		{name: "a cluster that is none, without a right to it", token: "user", path: "/nowhere/version", code: 403, message: `"nowhere" is forbidden`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			method := tc.method
			if method == "" {
				method = http.MethodGet
			}
			r, err := http.NewRequestWithContext(t.Context(), method, w.url+tc.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = tc.header.Clone()
			if r.Header == nil {
				r.Header = http.Header{}
			}
			r.Header.Set("Authorization", "Bearer "+tc.token)
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var status metav1.Status
			if resp.StatusCode >= 400 {
				if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
					t.Errorf("the answer is no Status: %v", err)
				}
			}
			if resp.StatusCode != tc.code || !strings.Contains(status.Message, tc.message) {
				t.Errorf("%d %q, want %d with %q", resp.StatusCode, status.Message, tc.code, tc.message)
			}
			select {
			case <-seen:
				if tc.code != 200 {
					t.Error("the cluster saw the request")
				}
			default:
			}
		})
	}
}

// TestTokensOfTheHubStay is about tokens that are not good, but must not go to a
// cluster all the same.
func TestTokensOfTheHubStay(t *testing.T) {
	w := start(t)
	seen := make(chan *http.Request, 10)
	w.agent("cluster1", keeping(seen), "cluster1")
	w.api.Errors["expired"] = "[invalid bearer token, service account token has expired]"
	w.api.Errors["for-vault"] = `[invalid bearer token, token audiences ["vault"] is invalid for the target audiences ["hub"]]`
	w.api.Errors["undecided"] = "[invalid bearer token, Post \"https://webhook\": context deadline exceeded]"
	w.api.Errors["expired-oidc"] = "[invalid bearer token, oidc: verify token: oidc: token is expired (Token Expiry: 2026-01-01 00:00:00 +0000 UTC)]"
	client := w.client()
	for token, want := range map[string]int{"expired": 401, "for-vault": 401, "expired-oidc": 401, "undecided": 503, "abcdef.0123456789abcdef": 401, "unknown": 200} {
		if resp, body := get(t, client, w.url+"/cluster1/version", http.Header{"Authorization": {"Bearer " + token}}); resp.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", token, resp.StatusCode, body, want)
		}
	}
	// Undecided tokens are asked about again, and unknown ones are not cached.
	w.api.Lock()
	delete(w.api.Errors, "undecided")
	w.api.Unlock()
	w.api.User("undecided", "jane")
	if resp, body := get(t, client, w.url+"/cluster1/version", http.Header{"Authorization": {"Bearer undecided"}}); resp.StatusCode != 403 {
		t.Errorf("once the webhook answers: %d %s, want 403", resp.StatusCode, body)
	}
	if resp, body := get(t, client, w.url+"/cluster1/version", http.Header{"Authorization": {"Basic amFuZTpwYXNzd29yZA=="}}); resp.StatusCode != 401 {
		t.Errorf("Basic: %d %s, want 401", resp.StatusCode, body)
	}
	// The hub would not be asked about these, and a lenient reader takes them.
	for _, odd := range []string{"Bearer  expired", "Bearer\texpired", "bearer expired x", "BEARER", "Bearer"} {
		if resp, body := get(t, client, w.url+"/cluster1/version", http.Header{"Authorization": {odd}}); resp.StatusCode != 401 {
			t.Errorf("%q: %d %s, want 401", odd, resp.StatusCode, body)
		}
	}
	w.api.Lock()
	w.api.Down = true
	w.api.Unlock()
	if resp, _ := get(t, client, w.url+"/cluster1/version", http.Header{"Authorization": {"Bearer new"}}); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("with the hub down: %d, want 503 with Retry-After", resp.StatusCode)
	}
	if r := <-seen; r.Header.Get("Authorization") != "Bearer unknown" || len(seen) > 0 {
		t.Errorf("the cluster saw %q and %d more", r.Header.Get("Authorization"), len(seen))
	}
	if resp, _ := get(t, client, w.url+"/cluster1/version", http.Header{"Authorization": {"Bearer a", "Bearer b"}}); resp.StatusCode != 401 {
		t.Errorf("two tokens: %d, want 401", resp.StatusCode)
	}
}

func TestPassThroughLeavesClaimsToTheCluster(t *testing.T) {
	w := start(t)
	seen := make(chan *http.Request, 1)
	w.agent("cluster1", keeping(seen), "cluster1")
	get(t, w.client(), w.url+"/cluster1/version", http.Header{"Authorization": {"Bearer of-the-cluster"}, "Impersonate-User": {"jane"}, "Impersonate-Group": {"a", "b"},
		"X-Remote-User": {"admin"}})
	want := map[string][]string{"Authorization": {"Bearer of-the-cluster"}, "Impersonate-User": {"jane"}, "Impersonate-Group": {"a", "b"}}
	if diff := cmp.Diff(want, identityHeaders(<-seen)); diff != "" {
		t.Errorf("headers at the agent (-want +got):\n%s", diff)
	}
	if len(w.api.Asked) > 0 {
		t.Errorf("the hub was asked about the rights of an unauthenticated user: %v", w.api.Asked)
	}
}

func TestImpersonationIsCheckedOnTheHub(t *testing.T) {
	w := start(t)
	w.api.User("admin", "root", "admins")
	w.api.User("user", "jane", "devs")
	w.api.Allow("root impersonate users bob", "root impersonate groups ops", "bob * clusters/proxy *", "jane * clusters/proxy *")
	seen := make(chan *http.Request, 1)
	w.agent("cluster1", keeping(seen), "cluster1")
	client := w.client()
	header := http.Header{"Authorization": {"Bearer admin"}, "Impersonate-User": {"bob"}, "Impersonate-Group": {"ops"}}
	if resp, body := get(t, client, w.url+"/cluster1/version", header); resp.StatusCode != 200 {
		t.Fatalf("answered %d %s, want 200", resp.StatusCode, body)
	}
	want := map[string][]string{"X-Remote-User": {"bob"}, "X-Remote-Group": {"ops", "system:authenticated"}}
	if diff := cmp.Diff(want, identityHeaders(<-seen)); diff != "" {
		t.Errorf("headers at the agent (-want +got):\n%s", diff)
	}
	header.Set("Authorization", "Bearer user")
	if resp, _ := get(t, client, w.url+"/cluster1/version", header); resp.StatusCode != 403 {
		t.Errorf("jane impersonates: %d, want 403", resp.StatusCode)
	}
}

// withCertificate is a client of the proxy API with a certificate of one of the hub's
// CAs.
func (w *world) withCertificate(ca, user string, groups ...string) *http.Client {
	w.t.Helper()
	leaf := pki.Leaf{CommonName: user, Organizations: groups, Client: true}
	client := w.client()
	client.Transport.(*http.Transport).TLSClientConfig = pkitest.NewReloader(w.t, w.cas[ca], leaf, w.hubCA).ClientConfig("")
	return client
}

func TestClientCertificates(t *testing.T) {
	w := start(t)
	w.api.Allow("devs * clusters/proxy *")
	w.cas["foreign"] = pkitest.NewCA(t, "foreign")
	seen := make(chan *http.Request, 1)
	w.agent("cluster1", keeping(seen), "cluster1")
	w.waitForCAs()
	for _, tc := range []struct {
		name     string
		client   *http.Client
		header   http.Header
		code     int
		wantUser string
	}{
		{name: "a user of the hub", client: w.withCertificate("users", "jane", "devs"), code: 200, wantUser: "jane"},
		{name: "a user of the hub with claims", client: w.withCertificate("users", "jane", "devs"), header: http.Header{"X-Remote-User": {"admin"}}, code: 200, wantUser: "jane"},
		{name: "the front proxy", client: w.withCertificate("front-proxy", "front-proxy-client"), header: http.Header{"X-Remote-User": {"bob"}, "X-Remote-Group": {"devs"}}, code: 200, wantUser: "bob"},
		{name: "not the front proxy", client: w.withCertificate("front-proxy", "another"), header: http.Header{"X-Remote-User": {"bob"}, "X-Remote-Group": {"devs"}}, code: 401},
		{name: "the front proxy's name from another CA", client: w.withCertificate("users", "front-proxy-client"), header: http.Header{"X-Remote-User": {"bob"}, "X-Remote-Group": {"devs"}}, code: 403},
		{name: "a certificate of a foreign CA", client: w.withCertificate("foreign", "jane", "devs"), code: 401},
		{name: "a certificate of a foreign CA, and a token of the cluster", client: w.withCertificate("foreign", "jane", "devs"), header: http.Header{"Authorization": {"Bearer x"}}, code: 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			header := tc.header
			if header == nil {
				header = http.Header{}
			}
			resp, body := get(t, tc.client, w.url+"/cluster1/version", header)
			if resp.StatusCode != tc.code {
				t.Fatalf("%d %s, want %d", resp.StatusCode, body, tc.code)
			}
			if tc.code == 200 {
				if got := (<-seen).Header.Get("X-Remote-User"); got != tc.wantUser {
					t.Errorf("the agent was told of %q, want %q", got, tc.wantUser)
				}
			}
		})
	}
}

// waitForCAs waits until the proxy API knows the hub's CAs.
func (w *world) waitForCAs() {
	w.t.Helper()
	for ca, user := range map[string]string{"users": "probe", "front-proxy": "front-proxy-client"} {
		client := w.withCertificate(ca, user)
		wait.Poll{Every: 10 * time.Millisecond, For: 20 * time.Second}.Success(w.t, "the proxy API knows the hub's CA of "+ca, func() error {
			r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+scope.GroupPath, nil)
			if err != nil {
				w.t.Fatal(err)
			}
			r.Header.Set("X-Remote-User", "probe")
			resp, err := client.Do(r)
			if err != nil {
				return err
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusServiceUnavailable {
				return fmt.Errorf("answered %d", resp.StatusCode)
			}
			return nil
		})
	}
}

func TestNamesThatTurnIntoOthersAreNotAsserted(t *testing.T) {
	w := start(t)
	w.api.Allow("* * clusters/proxy *")
	w.agent("cluster1", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the agent was told of %q", r.Header)
	}), "cluster1")
	client := w.client()
	for token, names := range map[string][]string{"a": {" admin"}, "b": {"jane", "ops "}, "c": {"jane\r\nX-Remote-Group: ops"}, "d": {"jane", "\tops"}, "e": {""}} {
		w.api.User(token, names[0], names[1:]...)
		if resp, _ := get(t, client, w.url+"/cluster1/version", http.Header{"Authorization": {"Bearer " + token}}); resp.StatusCode != 403 && resp.StatusCode != 401 {
			t.Errorf("%q: %d, want a refusal", names, resp.StatusCode)
		}
	}
}

// TestWebSocketTokens sends a token as browsers do.
func TestWebSocketTokens(t *testing.T) {
	w := start(t)
	w.api.User("hub-token", "jane", "devs")
	w.api.Allow("jane * clusters/proxy *", "jane create clusters/stream *")
	seen := make(chan *http.Request, 1)
	w.agent("cluster1", keeping(seen), "cluster1")
	protocol := agentapi.WebSocketToken + "aHViLXRva2Vu"
	for name, token := range map[string]string{"as the only one": "", "beside another that is good": "Bearer hub-token"} {
		t.Run(name, func(t *testing.T) {
			header := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io, " + protocol}}
			if token != "" {
				header.Set("Authorization", token)
			}
			get(t, w.client("http/1.1"), w.url+"/cluster1/api/v1/namespaces/a/pods/b/exec", header)
			r := <-seen
			if got := strings.Join(r.Header["Sec-Websocket-Protocol"], ","); r.Header.Get("X-Remote-User") != "jane" || got != "v5.channel.k8s.io" {
				t.Errorf("user %q with protocols %q, want jane with v5.channel.k8s.io", r.Header.Get("X-Remote-User"), got)
			}
		})
	}
}

// TestTokensThatNobodyAskedAbout are where k8s.io/apiserver does not look for
// them: the hub's own must not go on to a cluster.
func TestTokensThatNobodyAskedAbout(t *testing.T) {
	w := start(t)
	w.api.User("hub-token", "jane", "devs")
	seen := make(chan *http.Request, 1)
	w.agent("cluster1", keeping(seen), "cluster1")
	for name, header := range map[string]http.Header{
		"no upgrade":                 {},
		"an upgrade to SPDY":         {"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}},
		"WebSocket beside another":   {"Connection": {"Upgrade"}, "Upgrade": {"websocket, h2c"}},
		"WebSocket in a second line": {"Connection": {"Upgrade"}, "Upgrade": {"h2c", "websocket"}},
		"the connection is not told": {"Upgrade": {"websocket"}},
	} {
		header.Set("Sec-Websocket-Protocol", "v5.channel.k8s.io, "+agentapi.WebSocketToken+"aHViLXRva2Vu")
		get(t, w.client("http/1.1"), w.url+"/cluster1/api/v1/namespaces/a/pods/b/exec", header)
		if r := <-seen; r.Header.Get("X-Remote-User") != "" || r.Header.Get("Sec-Websocket-Protocol") != "v5.channel.k8s.io" {
			t.Errorf("%s: the cluster sees %v, want no user, and v5.channel.k8s.io", name, r.Header)
		}
	}
}

func TestManyGroups(t *testing.T) {
	w := start(t)
	var groups []string
	for i := range 500 {
		groups = append(groups, fmt.Sprintf("cn=group-%03d,ou=groups,dc=example,dc=org", i))
	}
	w.api.User("hub-token", "jane", groups...)
	w.api.Allow("jane * clusters/proxy *")
	seen := make(chan *http.Request, 1)
	w.agent("cluster1", keeping(seen), "cluster1")
	get(t, w.client(), w.url+"/cluster1/version", http.Header{"Authorization": {"Bearer hub-token"}})
	if got := (<-seen).Header["X-Remote-Group"]; len(got) != 501 || !slices.Contains(got, groups[499]) {
		t.Errorf("%d groups arrived, want 501", len(got))
	}
}

// TestFloodOfBadTokens must not reach the hub, nor keep a known token out.
func TestFloodOfBadTokens(t *testing.T) {
	w := start(t)
	w.api.User("hub-token", "jane", "devs")
	w.api.Allow("jane * clusters/proxy *")
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Remote-User") == "" {
			rw.WriteHeader(http.StatusUnauthorized)
		}
	}), "cluster1")
	client := w.client()
	good := http.Header{"Authorization": {"Bearer hub-token"}}
	get(t, client, w.url+"/cluster1/version", good)
	var mu sync.Mutex
	codes := map[int]int{}
	const flood = 500
	began := time.Now()
	var wg sync.WaitGroup
	for worker := range flood / 10 {
		wg.Go(func() {
			for i := range 10 {
				resp, _ := get(t, client, w.url+"/cluster1/version", http.Header{"Authorization": {fmt.Sprint("Bearer bad-", worker, "-", i)}})
				mu.Lock()
				codes[resp.StatusCode]++
				mu.Unlock()
			}
		})
	}
	for range 5 {
		if resp, body := get(t, client, w.url+"/cluster1/version", good); resp.StatusCode != 200 {
			t.Errorf("a good token beside bad ones: %d %s, want 200", resp.StatusCode, body)
		}
	}
	wg.Wait()
	w.api.Lock()
	defer w.api.Unlock()
	// The good token is asked about every ten seconds.
	most := authn.SourceBurst + int(time.Since(began).Seconds()*authn.SourceRate*1.1) + 10
	if codes[401]+codes[429] != flood || w.api.Reviews > most {
		t.Errorf("answers %v, and the hub was asked %d times, want at most %d", codes, w.api.Reviews, most)
	}
}

// TestImpersonatedAccountsAreTheHubs has users impersonate a service account, as kubectl --as does:
// they may mean one of the cluster, and learn that it is the hub's, allowed or not.
func TestImpersonatedAccountsAreTheHubs(t *testing.T) {
	const account = "system:serviceaccount:shop:web"
	w := start(t)
	w.api.User("admin", "root")
	w.api.User("jane", "jane")
	w.api.Allow("root impersonate serviceaccounts web", "root impersonate users bob", "* * clusters/proxy *")
	w.agent("cluster1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "cluster1")
	for _, tc := range []struct {
		token, as string
		code      int
		want      string
	}{
		{"admin", account, 200, `which is \"cluster:hub:system:serviceaccount:shop:web\" on clusters`}, {"jane", account, 403, "accounts of a cluster itself cannot be impersonated through the hub"},
		{"admin", "bob", 200, ""},
	} {
		resp, body := get(t, w.client(), w.url+"/cluster1/api/v1/pods", http.Header{"Authorization": {"Bearer " + tc.token}, "Impersonate-User": {tc.as}})
		if got := strings.Join(resp.Header["Warning"], "|"); resp.StatusCode != tc.code || !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%s as %s: %d %s, Warning %q; want %d and %q", tc.token, tc.as, resp.StatusCode, body, got, tc.code, tc.want)
		}
	}
}
