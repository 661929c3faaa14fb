package apihandler

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/ownerpolicy"
)

// decide is what the filter does with the headers of a request from the hub.
func decide(header http.Header, allowed ...string) (name string, groups []string, err error) {
	u, err := hubUser(header)
	if err != nil || u == nil {
		return "", nil, err
	}
	if u, err = fromHub(u); err != nil {
		return "", nil, err
	}
	config, err := impersonation(u, allowed)
	return config.UserName, config.Groups, err
}

func TestWhoIsImpersonated(t *testing.T) {
	h := func(name string, groups ...string) http.Header {
		return http.Header{"X-Remote-User": {name}, "X-Remote-Group": groups}
	}
	for name, test := range map[string]struct {
		header     http.Header
		allowed    []string
		wantUser   string
		wantGroups []string
		wantErr    bool
	}{
		"nobody":                    {header: http.Header{"Authorization": {"Bearer x"}}},
		"a user":                    {header: h("jane", "devs", "system:authenticated"), wantUser: "jane", wantGroups: []string{"devs", "system:authenticated"}},
		"a service account":         {header: h("system:serviceaccount:a:b", "system:serviceaccounts", "system:serviceaccounts:a"), wantUser: "cluster:hub:system:serviceaccount:a:b", wantGroups: []string{"cluster:hub:system:serviceaccounts", "cluster:hub:system:serviceaccounts:a"}},
		"the prefix itself":         {header: h("cluster:hub:system:serviceaccount:a:b"), wantErr: true},
		"the prefix in a group":     {header: h("jane", "cluster:hub:system:serviceaccounts:a"), wantErr: true},
		"a component":               {header: h("system:kube-controller-manager"), wantErr: true},
		"a node":                    {header: h("system:node:n"), wantErr: true},
		"masters as a user":         {header: h("system:masters"), wantErr: true},
		"the anonymous":             {header: h("system:anonymous"), wantErr: true},
		"an administrator":          {header: h("admin", "system:masters", "ops"), wantUser: "admin", wantGroups: []string{"ops"}},
		"a node's group":            {header: h("jane", "system:nodes", "system:node-proxier"), wantUser: "jane"},
		"an allowed group":          {header: h("admin", "system:masters", "system:nodes"), allowed: []string{"system:masters"}, wantUser: "admin", wantGroups: []string{"system:masters"}},
		"kubeadm's administrators":  {header: h("jane", "kubeadm:cluster-admins", "ops"), wantUser: "jane", wantGroups: []string{"ops"}},
		"kubeadm's, allowed":        {header: h("jane", "kubeadm:cluster-admins"), allowed: []string{"kubeadm:cluster-admins"}, wantUser: "jane", wantGroups: []string{"kubeadm:cluster-admins"}},
		"kubeadm's as a user":       {header: h("kubeadm:cluster-admins"), wantErr: true},
		"an allowed user":           {header: h("system:admin"), allowed: []string{"system:admin"}, wantUser: "system:admin"},
		"allowed is no pattern":     {header: h("system:node:n"), allowed: []string{"system:*", "system:node:"}, wantErr: true},
		"mapped before allowed":     {header: h("system:serviceaccount:a:b"), allowed: []string{"system:serviceaccount:a:b"}, wantUser: "cluster:hub:system:serviceaccount:a:b"},
		"an empty user":             {header: h(""), wantErr: true},
		"a space before":            {header: h(" system:masters"), wantErr: true},
		"a space in a group":        {header: h("jane", "system:masters\t"), wantErr: true},
		"an empty group":            {header: h("jane", ""), wantErr: true},
		"a line break":              {header: h("jane\r\nImpersonate-Group: system:masters"), wantErr: true},
		"two users":                 {header: http.Header{"X-Remote-User": {"a", "b"}}, wantErr: true},
		"groups of nobody":          {header: http.Header{"X-Remote-Group": {"a"}}, wantErr: true},
		"an underscore":             {header: http.Header{"X_remote_user": {"a"}}, wantErr: true},
		"an underscore besides":     {header: http.Header{"X-Remote-User": {"a"}, "X-Remote_group": {"b"}}, wantErr: true},
		"lower case":                {header: http.Header{"x-remote-user": {"a"}}, wantErr: true},
		"an unknown one":            {header: http.Header{"X-Remote-User": {"a"}, "X-Remote-Name": {"b"}}, wantErr: true},
		"an extra that says little": {header: http.Header{"X-Remote-User": {"a"}, "X-Remote-Extra-": {"b"}}, wantErr: true},
		"an extra twice":            {header: http.Header{"X-Remote-User": {"a"}, "X-Remote-Extra-A": {"b"}, "X-Remote-Extra-%41": {"c"}}, wantErr: true},
		"an extra that is broken":   {header: http.Header{"X-Remote-User": {"a"}, "X-Remote-Extra-%zz": {"b"}}, wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			gotUser, gotGroups, err := decide(test.header, test.allowed...)
			if (err != nil) != test.wantErr {
				t.Fatalf("error %v, want one: %v", err, test.wantErr)
			}
			if gotUser != test.wantUser || !slices.Equal(gotGroups, test.wantGroups) {
				t.Errorf("impersonates %q %q, want %q %q", gotUser, gotGroups, test.wantUser, test.wantGroups)
			}
		})
	}
}

// On the hub's own cluster users are themselves, with every name that they have.
func TestHubsOwnCluster(t *testing.T) {
	h := func(name string, groups ...string) http.Header {
		return http.Header{"X-Remote-User": {name}, "X-Remote-Group": groups, "X-Remote-Uid": {"u1"}, "X-Remote-Extra-A": {"b"}}
	}
	account := h("system:serviceaccount:a:b", "system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated")
	for name, test := range map[string]struct {
		onHub    bool
		header   http.Header
		wantCode int
		want     transport.ImpersonationConfig // for code 200
	}{
		"a service account": {true, account, http.StatusOK, transport.ImpersonationConfig{
			UserName: "system:serviceaccount:a:b", UID: "u1", Groups: account["X-Remote-Group"], Extra: map[string][]string{"a": {"b"}}}},
		"an administrator": {true, h("admin", "system:masters", "kubeadm:cluster-admins"), http.StatusOK, transport.ImpersonationConfig{
			UserName: "admin", UID: "u1", Groups: []string{"system:masters", "kubeadm:cluster-admins"}, Extra: map[string][]string{"a": {"b"}}}},
		"a user whom another hub sent": {true, h("cluster:hub:system:serviceaccount:a:b"), http.StatusOK, transport.ImpersonationConfig{
			UserName: "cluster:hub:system:serviceaccount:a:b", UID: "u1", Extra: map[string][]string{"a": {"b"}}}},
		"a line break": {true, h("jane\r\nImpersonate-Group: system:masters"), http.StatusForbidden, transport.ImpersonationConfig{}},
		"elsewhere": {false, account, http.StatusOK, transport.ImpersonationConfig{
			UserName: "cluster:hub:system:serviceaccount:a:b", UID: "u1", Extra: map[string][]string{"a": {"b"}},
			Groups: []string{"cluster:hub:system:serviceaccounts", "cluster:hub:system:serviceaccounts:a", "system:authenticated"}}},
		"elsewhere, a component": {false, h("system:kube-scheduler"), http.StatusForbidden, transport.ImpersonationConfig{}},
		"nobody of the hub":      {true, http.Header{"Authorization": {"Bearer x"}}, http.StatusOK, transport.ImpersonationConfig{}},
	} {
		t.Run(name, func(t *testing.T) {
			var got transport.ImpersonationConfig
			next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, _ = impersonationOf(r.Context()) })
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "/api", nil)
			r.Header = test.header
			Access{OnHub: test.onHub, ExtraKeys: []string{"a"}}.filter(next).ServeHTTP(w, r)
			if w.Code != test.wantCode {
				t.Fatalf("answered %d, want %d: %s", w.Code, test.wantCode, w.Body)
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("impersonated (-want +got):\n%s", diff)
			}
		})
	}
}

// Nobody becomes a part of this cluster's control plane
// or one of its service accounts, whatever the hub says.
func FuzzNoControlPlaneNames(f *testing.F) {
	for _, seed := range []string{"jane", "system:masters", " system:masters", "system:serviceaccount:a:b", "SYSTEM:masters", "system:authenticated\x00", "cluster:hub:x", "kubeadm:cluster-admins"} {
		f.Add("X-Remote-User", seed, "X-Remote-Group", seed)
		f.Add("x_remote-user", seed, "X-Remote-Group", "devs")
	}
	f.Fuzz(func(t *testing.T, header1, value1, header2, value2 string) {
		name, groups, err := decide(http.Header{header1: {value1}, header2: {value2}})
		if err != nil {
			return
		}
		for _, got := range append(groups, name) {
			if got != strings.TrimSpace(got) || strings.HasPrefix(got, "system:") && got != "system:authenticated" || strings.HasPrefix(got, "kubeadm:") || strings.ContainsAny(got, "\r\n\x00") {
				t.Errorf("asserts %q, want no name of Kubernetes' own but system:authenticated, and no spaces around it", got)
			}
		}
	})
}

var forgedHeaders = http.Header{
	"X-Remote-User": {"jane"}, "X-Remote-Uid": {"u1"}, "X-Remote-Group": {"devs", "ops"}, "X-Remote-Extra-Example.org%2fteam": {"a", "b"},
	"Authorization": {"Bearer users-token"}, "Proxy-Authorization": {"Basic x"},
	"Impersonate-User": {"system:admin"}, "Impersonate_group": {"system:masters"}, "Impersonate-Extra-Scopes": {"x"}, "Impersonate-Uid": {"0"},
}

func identityHeadersOf(header http.Header) http.Header {
	out := http.Header{}
	for name, values := range header {
		if slices.ContainsFunc(identityHeaders, func(prefix string) bool { return agentapi.Begins(name, prefix) }) {
			out[name] = values
		}
	}
	return out
}

var impersonated = http.Header{
	"Authorization": {"Bearer the-agents-own-token"}, "Impersonate-User": {"jane"}, "Impersonate-Uid": {"u1"},
	"Impersonate-Group": {"devs", "ops"}, "Impersonate-Extra-Example.org%2fteam": {"a", "b"},
}

func do(t *testing.T, f *fixture, method, path string, header http.Header) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, f.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header.Clone()
	resp, err := f.proxyAPI(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var status metav1.Status
	_ = json.Unmarshal(body, &status)
	return resp.StatusCode, status.Message
}

func TestAssertedIdentityIsImpersonated(t *testing.T) {
	seen := make(chan http.Header, 1)
	f := start(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Clone() }, Access{ExtraKeys: []string{"example.org/team"}})
	if code, message := do(t, f, http.MethodGet, "/api", forgedHeaders); code != http.StatusOK {
		t.Fatalf("answered %d %s, want 200", code, message)
	}
	if diff := cmp.Diff(impersonated, identityHeadersOf(<-seen)); diff != "" {
		t.Errorf("the kube-apiserver saw (-want +got):\n%s", diff)
	}
}

func TestUpgradeIsImpersonated(t *testing.T) {
	seen, gone := make(chan http.Header, 1), make(chan struct{})
	f := start(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
		close(gone)
	}, Access{ExtraKeys: []string{"example.org/team"}})
	conn := f.dialHTTP1(t)
	req, err := http.NewRequest(http.MethodGet, f.url+"/exec", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = forgedHeaders.Clone()
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answer %v, %v; want 101", resp, err)
	}
	if diff := cmp.Diff(impersonated, identityHeadersOf(<-seen)); diff != "" {
		t.Errorf("the kube-apiserver saw (-want +got):\n%s", diff)
	}
	conn.Close()
	select { // a client that goes away leaves nothing open
	case <-gone:
	case <-time.After(time.Minute):
		t.Error("the kube-apiserver still has the connection after a minute")
	}
}

func TestBadIdentitiesGoNowhere(t *testing.T) {
	f := start(t, func(http.ResponseWriter, *http.Request) { t.Error("a request got through") })
	for name, test := range map[string]struct {
		header http.Header
		want   int
	}{
		"reserved":          {http.Header{"X-Remote-User": {"system:kube-scheduler"}}, http.StatusForbidden},
		"groups of nobody":  {http.Header{"X-Remote-Group": {"a"}}, http.StatusBadRequest},
		"underscore":        {http.Header{"X_remote_user": {"a"}}, http.StatusBadRequest},
		"a WebSocket token": {http.Header{"X-Remote-User": {"a"}, "Sec-Websocket-Protocol": {"v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.abc"}}, http.StatusBadRequest},
	} {
		if code, _ := do(t, f, http.MethodGet, "/api", test.header); code != test.want {
			t.Errorf("%s: answered %d, want %d", name, code, test.want)
		}
	}
}

func TestFiveHundredGroups(t *testing.T) {
	seen := make(chan http.Header, 1)
	f := start(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Clone() })
	header := http.Header{"X-Remote-User": {"jane"}}
	for i := range 500 {
		header.Add("X-Remote-Group", fmt.Sprintf("cn=a-group-with-a-long-name-%d,ou=groups,o=example", i))
	}
	if code, message := do(t, f, http.MethodGet, "/api", header); code != http.StatusOK {
		t.Fatalf("answered %d %s, want 200", code, message)
	}
	if got := len((<-seen)["Impersonate-Group"]); got != 500 {
		t.Errorf("%d groups arrived, want 500", got)
	}
}

func TestOwnerCaps(t *testing.T) {
	policy, broken := ownerpolicy.Policy{}, error(nil)
	f := start(t, func(http.ResponseWriter, *http.Request) {}, Access{Owner: func() (ownerpolicy.Policy, error) { return policy, broken }})
	for name, test := range map[string]struct {
		policy       ownerpolicy.Policy
		broken       error
		method, path string
		header       http.Header
		want         int
	}{
		"no caps":                {method: "POST", path: "/api/v1/namespaces", want: 200},
		"read-only reads":        {policy: ownerpolicy.Policy{ReadOnly: true}, method: "GET", path: "/api/v1/pods", want: 200},
		"read-only writes":       {policy: ownerpolicy.Policy{ReadOnly: true}, method: "POST", path: "/api/v1/namespaces", want: 403},
		"a token of the cluster": {policy: ownerpolicy.Policy{ReadOnly: true}, method: "POST", path: "/api/v1/namespaces", header: http.Header{"Authorization": {"Bearer x"}}, want: 403},
		"a Service":              {policy: ownerpolicy.Policy{NoStreams: true}, method: "GET", path: "/", header: http.Header{"Cluster-Proxy-Service": {"s"}}, want: 403},
		"a broken policy":        {broken: errors.New("mend the ConfigMap"), method: "GET", path: "/api", want: 403},
		"reserved":               {method: "GET", path: "/api", header: http.Header{"X-Remote-User": {"system:admin"}}, want: 403},
		"reserved but allowed":   {policy: ownerpolicy.Policy{AllowedReservedNames: []string{"system:admin"}}, method: "GET", path: "/api", header: http.Header{"X-Remote-User": {"system:admin"}}, want: 200},
	} {
		policy, broken = test.policy, test.broken
		if code, message := do(t, f, test.method, test.path, test.header); code != test.want {
			t.Errorf("%s: answered %d (%s), want %d", name, code, message, test.want)
		}
	}
}

// oneName is an identity provider that returns the same user for every token.
type oneName user.DefaultInfo

func (s *oneName) AuthenticateRequest(*http.Request) (*authenticator.Response, bool, error) {
	return &authenticator.Response{User: (*user.DefaultInfo)(s)}, true, nil
}

// TestProviderCannotAssertHubUsers: a cluster's identity provider must not make a
// user a service account of the hub, to which the owner may have bound rights.
func TestProviderCannotAssertHubUsers(t *testing.T) {
	for _, u := range []user.DefaultInfo{
		{Name: "cluster:hub:system:serviceaccount:a:b"},
		{Name: "jane", Groups: []string{"cluster:hub:system:serviceaccounts:a"}},
		{Name: "system:admin"},
	} {
		f := start(t, func(http.ResponseWriter, *http.Request) { t.Errorf("%+v reached the kube-apiserver", u) }, Access{OIDC: (*oneName)(&u)})
		if code, message := do(t, f, http.MethodGet, "/api", http.Header{"Authorization": {"Bearer x"}}); code != http.StatusForbidden {
			t.Errorf("%+v: answered %d (%s), want 403", u, code, message)
		}
	}
}

func TestExtraAndUIDAreKept(t *testing.T) {
	u, err := fromHub(&user.DefaultInfo{Name: "jane", UID: "1", Extra: map[string][]string{"a": {"b"}}})
	if err != nil {
		t.Fatal(err)
	}
	if config, err := impersonation(u, nil); err != nil || config.UID != "1" || !slices.Equal(config.Extra["a"], []string{"b"}) {
		t.Errorf("impersonation = %+v, %v; want UID 1 and a=b", config, err)
	}
}

// TestAdministratorsSeeWhy has a cluster refuse administrators of the hub, of whose groups it is
// not told. Others see the cluster's refusal alone.
func TestAdministratorsSeeWhy(t *testing.T) {
	refusal := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/nodes" {
			w.WriteHeader(http.StatusForbidden)
		}
	}
	for name, test := range map[string]struct {
		user, group, path, want string
		onHub                   bool
	}{
		"a long name":      {user: "jane", group: "system:" + strings.Repeat("x", 1000), path: "/api/v1/nodes", want: "your groups system:" + strings.Repeat("x", warnedBytes-len("system:")) + " on the hub"},
		"kubeadm's":        {user: "kubernetes-admin", group: "kubeadm:cluster-admins", path: "/api/v1/nodes", want: `299 - "this cluster is not told of your groups kubeadm:cluster-admins on the hub, which mean something to its own control plane: bind a role there to user \"kubernetes-admin\""`},
		"masters":          {user: "admin", group: "system:masters", path: "/api/v1/nodes", want: `groups system:masters on the hub`},
		"who may":          {user: "admin", group: "system:masters", path: "/api/v1/pods"},
		"a user":           {user: "jane", group: "system:authenticated", path: "/api/v1/nodes"},
		"accounts' groups": {user: "system:serviceaccount:a:b", group: "system:serviceaccounts:a", path: "/api/v1/nodes"},
		"on the hub":       {user: "admin", group: "system:masters", path: "/api/v1/nodes", onHub: true},
	} {
		f := start(t, refusal, Access{OnHub: test.onHub})
		req, err := http.NewRequest(http.MethodGet, f.url+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"X-Remote-User": {test.user}, "X-Remote-Group": {test.group}}
		resp, err := f.proxyAPI(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := strings.Join(resp.Header["Warning"], "|"); !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: %d with Warning %q, want %q", name, resp.StatusCode, got, test.want)
		}
	}
}
