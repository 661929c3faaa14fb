package proxyapi

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/accesspolicy"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// fakePolicies are the AccessPolicies of a hub: none, until use is called. Cluster1 has label
// env=prod, and cluster2 env=test.
type fakePolicies struct {
	mu     sync.Mutex
	set    *accesspolicy.Set
	unread error
}

func (f *fakePolicies) Synced() error { return nil }

func (f *fakePolicies) Set() (*accesspolicy.Set, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.set == nil {
		return accesspolicy.NewSet(nil), f.unread
	}
	return f.set, f.unread
}

func (f *fakePolicies) Cluster(name string) accesspolicy.Cluster {
	env := map[string]string{"cluster1": "prod", "cluster2": "test"}
	return accesspolicy.Cluster{Name: name, Labels: map[string]string{"env": env[name]}, Sets: func() []string { return []string{"set-of-" + name} }}
}

// use replaces all policies, whose rules may not compile.
func (f *fakePolicies) use(objects ...*proxyv1alpha1.AccessPolicy) {
	var compiled []*accesspolicy.Policy
	for _, object := range objects {
		p, _ := accesspolicy.Compile(object, nil)
		compiled = append(compiled, p)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set = accesspolicy.NewSet(compiled)
}

func policyOf(name string, mode proxyv1alpha1.AccessPolicyMode, expression string) *proxyv1alpha1.AccessPolicy {
	return &proxyv1alpha1.AccessPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: proxyv1alpha1.AccessPolicySpec{
		Mode: mode, Rules: []proxyv1alpha1.AccessPolicyRule{{Name: "r", Expression: expression, Message: "ask the owner"}}}}
}

// policyWorld has every endpoint, and counts what arrives at its clusters.
func policyWorld(t *testing.T, change ...func(*Options)) (w *world, arrived *atomic.Int32) {
	change = append(change, func(o *Options) { o.Domain = "clusters.example.org" })
	w = karmadaWorld(t, askAll, change...)
	arrived = new(atomic.Int32)
	for _, cluster := range []string{"cluster1", "cluster2"} {
		w.agent(cluster, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			arrived.Add(1)
			fmt.Fprintf(rw, "%s %s", r.Method, r.RequestURI)
		}), cluster)
	}
	w.api.Allow("jane * * *", "jane * clusters.cluster.karmada.io/proxy *", "jane * clusters.cluster.karmada.io/stream *", "jane * proxying.search.karmada.io/proxy *",
		"jane * clusters/proxy *", "jane * clusters/stream *", "jane * clusters/metrics *", "jane * clusters/identity *", "jane get clusters *", "jane get fleetviews *", "jane * fleetviews/proxy *")
	w.api.SetExposed(map[string]string{"a": "[{namespace: ns, service: web}]"})
	eventually(t, func() bool {
		resp, _ := w.ask(http.MethodGet, "/cluster1/api/v1/namespaces/ns/services/web/proxy-service/", "hub-token")
		return resp.StatusCode == http.StatusOK
	})
	return w, arrived
}

// sendAs sends a request as it is, and returns its answer.
func (w *world) sendAs(config *tls.Config, text string) (int, string) {
	w.t.Helper()
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(w.url, "https://"), config)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, text)
	answer, err := io.ReadAll(conn)
	if err != nil {
		w.t.Fatal(err)
	}
	code := 0
	_, _ = fmt.Sscanf(string(answer), "HTTP/1.1 %d", &code)
	return code, string(answer)
}

// TestPoliciesOfViews has what a view sends to one cluster.
func TestPoliciesOfViews(t *testing.T) {
	w, arrived := policyWorld(t)
	w.addView("both", "cluster1", "cluster2")
	w.policies.use(policyOf("no-streams", proxyv1alpha1.ModeEnforce, "cluster.name != 'cluster1' || !request.upgrade && request.verb != 'deletecollection'"))
	for _, tc := range []struct {
		name, method, path string
		header             []string
		arrives            int32
		want               string
	}{
		{name: "exec", path: "/api/v1/namespaces/a/pods/b@cluster1/exec", header: []string{"Connection", "Upgrade", "Upgrade", "websocket"}, want: "no-streams"},
		{name: "exec of the other", path: "/api/v1/namespaces/a/pods/b@cluster2/exec", header: []string{"Connection", "Upgrade", "Upgrade", "websocket"}, arrives: 1},
		{name: "relayed", path: "/api/v1/pods", header: []string{"X-Relay", "cluster1"}, arrives: 1},
		{name: "a request of the view's own", path: "/api/v1/pods", header: []string{"X-Method", "DELETE"}, arrives: 1, want: "cluster1 403"},
	} {
		before := arrived.Load()
		resp, body := w.ask(http.MethodGet, "/@both"+tc.path, "hub-token", tc.header...)
		if came := arrived.Load() - before; came != tc.arrives || !strings.Contains(body, tc.want) {
			t.Errorf("%s: %d arrived, want %d (%d %s)", tc.name, came, tc.arrives, resp.StatusCode, body)
		}
	}
}

// TestPoliciesOfConnect has connections that hide what is asked on them, and one to a Service.
func TestPoliciesOfConnect(t *testing.T) {
	w := start(t)
	w.api.User("hub-token", "jane")
	w.api.Allow("jane create clusters/proxy *", "jane create clusters/stream *")
	w.api.SetExposed(map[string]string{"a": "[{namespace: ns, service: db, protocol: tcp}]"})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	w.hub.Forward("cluster1:443", listener.Addr().String())
	config := w.client().Transport.(*http.Transport).TLSClientConfig
	ask := func(target string) int {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(w.url, "https://"), config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = connect.Ask(t.Context(), conn, target, http.Header{"Proxy-Authorization": {basic("x", "hub-token")}})
		var refusal *connect.Refusal
		if errors.As(err, &refusal) {
			return refusal.Code
		}
		if err != nil {
			t.Fatal(err)
		}
		return 200
	}
	for _, tc := range []struct {
		target, expression string
		want               int
	}{
		{"cluster1:443", "user.name == 'jane' && cluster.labels['env'] == 'prod' && now > timestamp('2020-01-01T00:00:00Z')", 200},
		{"cluster1:443", "user.name != 'jane'", 403},
		{"cluster1:443", "request.verb == 'create'", 403},
		{"cluster1:443", "true || request.verb == 'create'", 403},
		{"cluster1:443", "nonsense", 403},
		{"db.ns.svc.cluster1:5432", "request.service == 'ns/other'", 403},
		{"db.ns.svc.cluster1:5432", "request.verb == 'get'", 403},
		{"db.ns.svc.cluster1:5432", "request.service == 'ns/db:5432' && request.namespace == 'ns' && request.upgrade && request.verb == 'create'", 503}, // there is no agent
	} {
		w.policies.use(policyOf("p", "", tc.expression))
		if strings.HasPrefix(tc.target, "db") { // the list of Services comes by itself
			eventually(t, func() bool { return ask(tc.target) != 403 || tc.want == 403 })
		}
		if got := ask(tc.target); got != tc.want {
			t.Errorf("%s with %s: %d, want %d", tc.target, tc.expression, got, tc.want)
		}
	}
}

// TestPolicyModes has what lets requests pass, and what is in answers and audit events.
func TestPolicyModes(t *testing.T) {
	log, set := withAuditLog(t)
	w, arrived := policyWorld(t, set)
	w.addView("both", "cluster1", "cluster2")
	const objection = `AccessPolicy \"w\" would refuse the request if it were enforced by rule \"r\": ask the owner`
	for name, tc := range map[string]struct {
		path     string
		policies []*proxyv1alpha1.AccessPolicy
		arrives  int32
		warns    bool
	}{
		"a-warned":  {path: "/cluster1/api/v1/pods", policies: []*proxyv1alpha1.AccessPolicy{policyOf("w", proxyv1alpha1.ModeWarn, "false")}, arrives: 1, warns: true},
		"b-audited": {path: "/cluster1/api/v1/pods", policies: []*proxyv1alpha1.AccessPolicy{policyOf("x", proxyv1alpha1.ModeAudit, "nonsense")}, arrives: 1},
		"c-refused": {path: "/cluster1/api/v1/pods", policies: []*proxyv1alpha1.AccessPolicy{policyOf("w", proxyv1alpha1.ModeWarn, "false"), policyOf("y", "", "false")}, warns: true},
		"d-passed":  {path: "/cluster1/api/v1/pods", policies: []*proxyv1alpha1.AccessPolicy{policyOf("z", "", "true")}, arrives: 1},
		"e-view":    {path: "/@both/api/v1/pods", policies: []*proxyv1alpha1.AccessPolicy{policyOf("v", "", "cluster.name == 'cluster2'")}, arrives: 1},
	} {
		w.policies.use(tc.policies...)
		before := arrived.Load()
		resp, body := w.ask(http.MethodGet, tc.path+"?case="+name, "hub-token")
		if came := arrived.Load() - before; came != tc.arrives {
			t.Errorf("%s: %d arrived, want %d (%d %s)", name, came, tc.arrives, resp.StatusCode, body)
		}
		if got := strings.Contains(strings.Join(resp.Header["Warning"], " "), objection); got != tc.warns {
			t.Errorf("%s: Warnings %q, want %t", name, resp.Header["Warning"], tc.warns)
		}
	}
	w.policies.use()
	want := map[string]string{
		"a-warned": "w|warned by w/r (rule)", "b-audited": "x|audited by x/r (failed): compiling it: 1:1: undeclared reference to 'nonsense' (in container '')",
		"c-refused": "w,y|warned by w/r (rule); refused by y/r (rule)", "d-passed": "z|", "e-view": "v|cluster1 refused by v/r (rule)",
	}
	for _, event := range w.eventsOf(t, log) {
		_, name, _ := strings.Cut(event.RequestURI, "?case=")
		if got := event.Annotations[filter.PoliciesKey] + "|" + event.Annotations[filter.ObjectionsKey]; name != "" && got != want[name] {
			t.Errorf("%s: the audit event has %q, want %q", name, got, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("no audit event for %v", want)
	}
}

// TestPoliciesThatAreNotKnown refuses requests to clusters, and nothing else.
func TestPoliciesThatAreNotKnown(t *testing.T) {
	w, arrived := policyWorld(t)
	w.policies.mu.Lock()
	w.policies.unread = errors.New("not read yet")
	w.policies.mu.Unlock()
	before := arrived.Load()
	for path, want := range map[string]int{
		"/cluster1/api/v1/pods": 503, "/@all/api/v1/pods": 503, karmadasClusters + "/cluster1/proxy/version": 503, scope.ClustersPath + "cluster1/metrics": 503,
		scope.ClustersPath + "cluster1/identity": 503, scope.ClustersPath + "cluster1": 200,
	} {
		if resp, body := w.ask(http.MethodGet, path, "hub-token"); resp.StatusCode != want || want == 503 && !strings.Contains(body, "not read yet") {
			t.Errorf("%s: %d %s, want %d", path, resp.StatusCode, body, want)
		}
	}
	if arrived.Load() != before {
		t.Error("a request has arrived")
	}
}

// TestPoliciesOfUnknownCallers has callers whom the hub does not know: they are restricted by policies for everybody, and
// do not learn by them that there is a cluster.
func TestPoliciesOfUnknownCallers(t *testing.T) {
	w, arrived := policyWorld(t, func(o *Options) { o.AllowAnonymous = false })
	before := arrived.Load()
	refused := policyOf("p", "", "request.resource != 'secrets'")
	w.policies.use(refused)
	answers := map[string]string{}
	for _, path := range []string{"/cluster1/api/v1/secrets", "/nowhere/api/v1/secrets"} {
		resp, body := w.ask(http.MethodGet, path, "of-a-cluster")
		answers[fmt.Sprint(resp.StatusCode, body)] = path
	}
	if len(answers) != 1 || arrived.Load() != before {
		t.Errorf("a cluster and none are told apart: %v; or a request has arrived", answers)
	}
	for name, tc := range map[string]struct {
		subjects []proxyv1alpha1.AccessPolicySubject
		arrives  int32
	}{"everybody": {}, "others": {subjects: []proxyv1alpha1.AccessPolicySubject{{Kind: "Group", Name: "ai-agents"}}, arrives: 1}} {
		refused.Spec.Subjects = tc.subjects
		w.policies.use(refused)
		before := arrived.Load()
		// Once the cluster has accepted the token, its bearer may know more.
		w.ask(http.MethodGet, "/cluster1/api/v1/pods", "of-a-cluster")
		resp, body := w.ask(http.MethodGet, "/cluster1/api/v1/secrets", "of-a-cluster")
		if came := arrived.Load() - before - 1; came != tc.arrives || (resp.StatusCode == 403) != (tc.arrives == 0) {
			t.Errorf("a policy for %s: %d arrived, want %d (%d %s)", name, came, tc.arrives, resp.StatusCode, body)
		}
	}
}

// TestPoliciesEndStreams has streams that a policy refuses after a while, by a change or by the time, and others
// that go on beside them.
func TestPoliciesEndStreams(t *testing.T) {
	w := fleetWorld(t, func(rw http.ResponseWriter, r *http.Request, view fleet.View) {
		members, err := view.Members(r.Context())
		if err != nil {
			t.Error(err)
			return
		}
		resp, err := members[0].RoundTrip(r.Clone(r.Context()))
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		_ = http.NewResponseController(rw).Flush()
		_, _ = io.Copy(rw, resp.Body)
		panic(http.ErrAbortHandler) // which closes the connection
	})
	w.agent("cluster1", http.HandlerFunc(endless), "cluster1")
	w.addView("one", "cluster1")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	w.hub.Forward("cluster1:443", silent.Addr().String())
	for _, user := range []string{"jane", "bob"} {
		w.api.User(user, user)
		w.api.Allow(user+" * clusters/proxy *", user+" * clusters/stream *", user+" get fleetviews *")
	}
	config := w.client().Transport.(*http.Transport).TLSClientConfig
	streams := map[string]map[string]*openStream{"jane": {}, "bob": {}, "of-a-cluster": {}}
	for user, open := range streams {
		for kind, text := range streamKinds {
			header := "Authorization: Bearer " + user + "\r\n"
			if kind == "connect" {
				header = "Proxy-" + header
			}
			if user != "of-a-cluster" || kind == "watch" {
				open[kind] = w.openStream(config, text, header)
			}
			if user != "of-a-cluster" && kind == "watch" {
				open["view"] = w.openStream(config, strings.Replace(text, "/cluster1/", "/@one/", 1), header)
			}
		}
	}
	ends := func(user string, kinds ...string) {
		t.Helper()
		for _, kind := range kinds {
			s := streams[user][kind]
			wait.Poll{Every: 10 * time.Millisecond}.Until(t, user+"'s "+kind+" ends", func() bool { return !s.open() })
			delete(streams[user], kind)
		}
	}
	w.policies.use(policyOf("p", "", "request.resource != 'pods' || request.subresource != 'log' || user.name != 'jane'"))
	ends("jane", "logs", "connect") // a connection hides what it is
	ends("bob", "connect")
	w.policies.use(policyOf("p", "", fmt.Sprintf("user.name == 'bob' || now < timestamp('%s')", time.Now().UTC().Add(2*time.Second).Format(time.RFC3339Nano))))
	ends("jane", "watch", "view", "exec")
	ends("of-a-cluster", "watch")
	for kind, s := range streams["bob"] {
		if !s.open() {
			t.Errorf("bob's %s has ended", kind)
		}
	}
	if got := testutil.ToFloat64(w.server.metrics.Withdrawn.WithLabelValues("policy")); got != 7 {
		t.Errorf("%v streams were counted, want 7", got)
	}
}

// TestPoliciesOfSearches leaves out of a search the clusters of which it may not be told what it shows.
func TestPoliciesOfSearches(t *testing.T) {
	index := &fakeIndex{search: func(*indexapi.SearchRequest) (*indexapi.SearchAnswer, int) { return &indexapi.SearchAnswer{}, 200 }}
	w, _ := startIndexed(t, index, indexLeaf())
	for i, tc := range []struct{ expression, want, warning string }{
		{"request.verb == 'list'", "cluster1 cluster2", ""},
		{"cluster.name == 'cluster2' || request.verb == 'get'", "cluster2", "the search leaves out cluster1"},
		{"request.resource != 'secrets'", "", "reads more of requests than this one shows: ask the owner: the search leaves out cluster1,cluster2"},
	} {
		w.policies.use(policyOf("p", "", tc.expression))
		resp, body := w.ask(http.MethodGet, scope.ViewsPath+"all/search?q=web", "hub-token")
		var asked []string
		if len(index.searched) > i {
			for _, cluster := range index.searched[i].Clusters {
				asked = append(asked, cluster.Name)
			}
		}
		if got := strings.Join(asked, " "); got != tc.want || resp.StatusCode != 200 || !strings.Contains(strings.Join(resp.Header["Warning"], " "), tc.warning) {
			t.Errorf("%s: searched %q, want %q (%d %s, Warnings %q)", tc.expression, got, tc.want, resp.StatusCode, body, resp.Header["Warning"])
		}
	}
}
