package proxyapi

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/view"
	"open-cluster-management.io/cluster-proxy/test/testkit/hubapi"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// addView makes a view of clusters, before the first request.
func (w *world) addView(name string, clusters ...string) *proxyv1alpha1.FleetView {
	v := &proxyv1alpha1.FleetView{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Spec.Clusters.Names = clusters
	w.views.views = append(w.views.views, v)
	return v
}

// fleetFunc stands for package fleetview.
type fleetFunc func(w http.ResponseWriter, r *http.Request, view fleet.View)

func (f fleetFunc) Serve(w http.ResponseWriter, r *http.Request, view fleet.View) { f(w, r, view) }

// askAll asks each member what the view was asked, and answers with what they said.
func askAll(w http.ResponseWriter, r *http.Request, view fleet.View) {
	members, err := view.Members(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	for _, m := range members {
		if r.Header.Get("X-Relay") == m.Name() || strings.HasSuffix(r.URL.Path, "@"+m.Name()+"/exec") {
			view.Relay(w, r, m)
			return
		}
	}
	for _, m := range members {
		r := r.Clone(r.Context())
		if method := r.Header.Get("X-Method"); method != "" {
			r.Method = method
		}
		resp, err := m.RoundTrip(r)
		if err != nil {
			fmt.Fprintf(w, "%s failed: %v\n", m.Name(), err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Fprintf(w, "%s %d %s\n", m.Name(), resp.StatusCode, body)
		for _, warning := range resp.Header["Warning"] {
			fmt.Fprintf(w, "Warning: %s\n", warning)
		}
		for name := range resp.Header {
			w.Header().Add("X-Seen", name)
		}
	}
}

// fleetWorld serves views by handler. Its clusters say what they were asked, and by whom.
func fleetWorld(t *testing.T, handler fleetFunc, change ...func(*Options)) *world {
	change = append(change, func(o *Options) { o.RevalidateStreams = 200 * time.Millisecond })
	w := startWith(t, func(s *Server) { s.newFleetHandler = func(<-chan struct{}) view.FleetHandler { return handler } }, change...)
	for _, cluster := range []string{"cluster1", "cluster2"} {
		w.agent(cluster, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" || r.URL.Query().Get("watch") != "" {
				endless(rw, r)
				return
			}
			for _, name := range []string{"X-Remote-User", "Audit-Id", "Keep-Alive", "Set-Cookie", "Location"} {
				rw.Header().Set(name, "evil")
			}
			fmt.Fprintf(rw, "%s %s of %s", r.Method, r.RequestURI, strings.Join(r.Header["X-Remote-User"], ","))
		}), cluster)
	}
	w.addView("all", "away", "cluster1", "cluster2")
	return w
}

func (w *world) ask(method, path, token string, header ...string) (*http.Response, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := w.client("http/1.1").Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(body)
}

// asked are the clusters that answered, or that failed.
func askedIn(body string) string {
	var names []string
	for line := range strings.SplitSeq(strings.TrimSpace(body), "\n") {
		if name, rest, _ := strings.Cut(line, " "); strings.HasPrefix(rest, "200 ") || strings.HasPrefix(rest, "failed") {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// TestViewGrantsNothing has rights to a view, to clusters by name and by set, and with
// other verbs than the request's.
func TestViewGrantsNothing(t *testing.T) {
	const view = "jane get fleetviews all"
	for name, tc := range map[string]struct {
		rules          []string
		method, path   string
		header         []string
		code           int
		want, refusing string
	}{
		"nothing":                 {code: 403},
		"a view without clusters": {rules: []string{view}, code: 200},
		"clusters without a view": {rules: []string{"jane * clusters/proxy *"}, code: 403},
		"a cluster":               {rules: []string{view, "jane list clusters/proxy cluster2"}, code: 200, want: "cluster2"},
		"a set":                   {rules: []string{view, "jane list clustersets/proxy pair"}, code: 200, want: "cluster1 cluster2"},
		"all, and one is away":    {rules: []string{view, "jane list clusters/proxy *"}, code: 200, want: "away cluster1 cluster2"},
		"another verb":            {rules: []string{view, "jane get clusters/proxy *", "jane watch clusters/proxy *"}, code: 200},
		"reading is not deleting": {rules: []string{view, "jane get clusters/proxy *", "jane list clusters/proxy *"}, method: "DELETE", path: "/api/v1/namespaces/a/pods/b", code: 200},
		"reading is no exec": {rules: []string{view, "jane * clusters/proxy *"}, path: "/api/v1/namespaces/a/pods/b@cluster1/exec", code: 200,
			header: []string{"Connection", "Upgrade", "Upgrade", "websocket"}},
		"listing does not delete behind the view": {rules: []string{view, "jane list clusters/proxy cluster1"}, header: []string{"X-Method", "DELETE"}, code: 200,
			refusing: "needs the right to deletecollection clusters/proxy"},
		"nor create by a set": {rules: []string{view, "jane list clustersets/proxy pair"}, header: []string{"X-Method", "POST"}, code: 200,
			refusing: "needs the right to create clusters/proxy"},
		"impersonation without the right": {rules: []string{view, "jane list clusters/proxy *"}, header: []string{"Impersonate-User", "bob"}, code: 403},
		"impersonation": {rules: []string{view, "jane list clusters/proxy *", "jane impersonate users bob", "bob get fleetviews all", "bob list clusters/proxy cluster1"},
			header: []string{"Impersonate-User", "bob"}, code: 200, want: "cluster1"},
		"constrained impersonation in one cluster": {rules: []string{"jane impersonate:user-info users bob", "jane impersonate-on:user-info:list clusters/proxy cluster1",
			"bob get fleetviews all", "bob list clusters/proxy *"}, header: []string{"Impersonate-User", "bob"}, code: 403},
	} {
		t.Run(name, func(t *testing.T) {
			w := fleetWorld(t, askAll)
			w.api.User("hub-token", "jane")
			w.api.Allow(tc.rules...)
			if tc.method == "" {
				tc.method = http.MethodGet
			}
			if tc.path == "" {
				tc.path = "/api/v1/pods"
			}
			resp, body := w.ask(tc.method, "/@all"+tc.path, "hub-token", tc.header...)
			if resp.StatusCode != tc.code || tc.code == 200 && askedIn(body) != tc.want || !strings.Contains(body, tc.refusing) {
				t.Errorf("%d %s; want %d, clusters %q asked, and %q", resp.StatusCode, body, tc.code, tc.want, tc.refusing)
			}
			if tc.want == "" && tc.refusing == "" && strings.Contains(body, "cluster1") {
				t.Errorf("the answer %q tells of a cluster", body)
			}
			for _, seen := range resp.Header["X-Seen"] {
				if seen == "X-Remote-User" || seen == "Audit-Id" || seen == "Keep-Alive" || seen == "Set-Cookie" || seen == "Location" {
					t.Errorf("a cluster's header %s came through", seen)
				}
			}
		})
	}
}

// TestViewsAreForUsersOfTheHub has callers whom the hub does not know, though it lets
// anonymous requests go to clusters.
func TestViewsAreForUsersOfTheHub(t *testing.T) {
	w := fleetWorld(t, askAll)
	w.api.Allow("* * * *")
	for token, want := range map[string]string{"of-a-cluster": "for users of the hub", "": "does not know who you are"} {
		for _, prefix := range []string{"/@all", scope.ViewsPath + "all/proxy"} {
			resp, body := w.ask(http.MethodGet, prefix+"/api/v1/pods", token)
			if resp.StatusCode != 401 || !strings.Contains(body, want) {
				t.Errorf("%s with %q: %d %s; want 401 and %q", prefix, token, resp.StatusCode, body, want)
			}
		}
	}
}

// TestViewsThatCannotBeServed has views that are not there, not allowed, and not valid.
func TestViewsThatCannotBeServed(t *testing.T) {
	w := fleetWorld(t, askAll)
	w.addView("secret", "cluster1")
	w.addView("broken").Status.Conditions = []metav1.Condition{{Message: "the selector means nothing"}}
	w.api.User("jane", "jane")
	w.api.User("lister", "lister")
	w.api.Allow("jane get fleetviews all", "jane get fleetviews gone", "jane get fleetviews broken",
		"lister list fleetviews *", "lister get fleetviews all", "lister get fleetviews gone")
	said := map[string]string{}
	for _, tc := range []struct {
		token, view string
		code        int
		want        string
	}{
		{"jane", "all", 200, ""}, {"jane", "secret", 403, "cannot get"}, {"jane", "gone", 403, "cannot get"}, {"jane", "nowhere", 403, "cannot get"},
		{"jane", "broken", 503, "the selector means nothing"}, {"lister", "all", 200, ""},
		{"lister", "secret", 404, "those that you may use: all"}, {"lister", "gone", 404, "those that you may use: all"}, {"lister", "nowhere", 404, "those that you may use: all"},
	} {
		resp, body := w.ask(http.MethodGet, "/@"+tc.view+"/api/v1/pods", tc.token)
		if resp.StatusCode != tc.code || !strings.Contains(body, tc.want) {
			t.Errorf("%s asks %s: %d %s; want %d and %q", tc.token, tc.view, resp.StatusCode, body, tc.code, tc.want)
		}
		if resp.StatusCode == 403 || resp.StatusCode == 404 { // the same words for all
			body = strings.ReplaceAll(body, tc.view, "VIEW")
			if before, ok := said[tc.token]; ok && before != body {
				t.Errorf("%s asks %s: %s; for another view: %s", tc.token, tc.view, body, before)
			}
			said[tc.token] = body
		}
	}
}

// TestPathsOfViews has what package fleetview gets to see of a request, in both endpoints.
func TestPathsOfViews(t *testing.T) {
	seen := make(chan string, 1)
	w := fleetWorld(t, func(_ http.ResponseWriter, r *http.Request, view fleet.View) {
		seen <- view.Name + " " + view.Prefix + " " + r.URL.RequestURI() + " " + r.RequestURI
	})
	w.api.User("hub-token", "jane")
	w.api.Allow("jane get fleetviews all")
	for prefix, shown := range map[string]string{"/@all": "/@all", "/%40all": "/%40all", scope.ViewsPath + "all/proxy": scope.ViewsPath + "all/proxy"} {
		for path, want := range map[string]string{
			"/api/v1/pods?limit=5&x=/..":               "/api/v1/pods?limit=5&x=/..",
			"/api/v1/namespaces/a/pods/b%40c%2Fd/log?": "/api/v1/namespaces/a/pods/b%40c%2Fd/log?",
			"//api//v1/": "//api//v1/",
			"/api/v1/namespaces/a/pods/web-0@cluster2":   "/api/v1/namespaces/a/pods/web-0@cluster2",
			"/api/v1/namespaces/a/services/s/proxy/x%20": "/api/v1/namespaces/a/services/s/proxy/x%20",
		} {
			if code := w.raw("GET " + prefix + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer hub-token\r\n\r\n"); code != 200 {
				t.Errorf("%s%s: %d, want 200", prefix, path, code)
				continue
			}
			if diff := cmp.Diff("all "+shown+" "+want+" "+want, <-seen); diff != "" {
				t.Errorf("%s%s (-want +got):\n%s", prefix, path, diff)
			}
		}
		for path, want := range map[string]int{"/api/../x": 400, "/%2e%2e/x": 400, "/a%2f..%2fb": 400, "/api/v1/namespaces/a/services/s:80/proxy-service/": 404} {
			if code := w.raw("GET " + prefix + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer hub-token\r\n\r\n"); code != want {
				t.Errorf("%s%s: %d, want %d", prefix, path, code, want)
			}
		}
	}
	if code := w.raw("GET " + scope.ViewsPath + "all HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer hub-token\r\n\r\n"); code != 404 {
		t.Errorf("a view of the aggregated API itself: %d, want 404", code)
	}
	if len(seen) > 0 {
		t.Errorf("%s came through", <-seen)
	}
}

// TestLimitsOfViews has requests for views in limits of their own, and metrics.
func TestLimitsOfViews(t *testing.T) {
	enter, leave := make(chan struct{}), make(chan struct{})
	w := fleetWorld(t, func(rw http.ResponseWriter, r *http.Request, _ fleet.View) {
		if r.Header.Get("X-Wait") != "" {
			enter <- struct{}{}
			<-leave
		}
		rw.WriteHeader(http.StatusOK)
	}, func(o *Options) { o.ViewRequests, o.ViewRequestsPerUser, o.RequestsPerUser = 2, 1, 1 })
	for _, user := range []string{"ann", "bob", "eve"} {
		w.api.User(user, user)
	}
	w.api.Allow("* get fleetviews all", "* list clusters/proxy *")
	var waiting sync.WaitGroup
	for _, user := range []string{"ann", "bob"} {
		waiting.Go(func() { _, _ = w.ask(http.MethodGet, "/@all/api/v1/pods", user, "X-Wait", "1") })
		<-enter
		if user == "ann" {
			if resp, body := w.ask(http.MethodGet, "/@all/api/v1/pods", "ann"); resp.StatusCode != 429 || !strings.Contains(body, "requests for fleet views") {
				t.Errorf("a second one of ann: %d %s, want 429", resp.StatusCode, body)
			}
		}
	}
	if resp, body := w.ask(http.MethodGet, "/@all/api/v1/pods", "eve"); resp.StatusCode != 429 || !strings.Contains(body, "all users together") {
		t.Errorf("a third one: %d %s, want 429", resp.StatusCode, body)
	}
	if resp, body := w.ask(http.MethodGet, "/cluster1/api/v1/pods", "ann"); resp.StatusCode != 200 {
		t.Errorf("a single cluster meanwhile: %d %s, want 200", resp.StatusCode, body)
	}
	close(leave)
	waiting.Wait() // the end of the test would cancel the requests
	counted := w.server.metrics.ViewRequests
	wait.Poll{Every: 10 * time.Millisecond}.Until(t, "the requests end", func() bool { return testutil.ToFloat64(counted.WithLabelValues("list", "200")) == 2 })
	if got := testutil.ToFloat64(counted.WithLabelValues("list", "429")); got != 2 {
		t.Errorf("%v requests counted as 429, want 2", got)
	}
}

// TestViewsAreAudited has one event for a request, with the clusters that were asked.
func TestViewsAreAudited(t *testing.T) {
	w, events := audited(t, func(s *Server) {
		s.newFleetHandler = func(<-chan struct{}) view.FleetHandler { return fleetFunc(askAll) }
	})
	w.addView("all", "away", "cluster1", "cluster2")
	w.api.User("hub-token", "jane")
	w.api.Allow("jane get fleetviews all", "jane list clusters/proxy cluster1", "jane list clusters/proxy away")
	w.ask(http.MethodGet, "/@all/api/v1/pods?limit=7", "hub-token")
	found := events()
	if len(found) != 1 {
		t.Fatalf("%d events, want 1", len(found))
	}
	e := found[0]
	got := fmt.Sprintf("%s %s %s/%s %s: view %s, clusters %s, %s", e.User.Username, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ObjectRef.Name,
		e.Annotations[scope.AnnotationPrefix+"view"], e.Annotations[scope.AnnotationPrefix+"clusters"], e.Annotations[scope.AnnotationPrefix+"request"])
	if want := "jane list fleetviews/proxy all: view all, clusters away,cluster1, GET /api/v1/pods?limit=7"; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
	var many view.Names
	for i := range view.MaxNames + 5 {
		many.Add(fmt.Sprintf("c%03d", i))
	}
	if got := many.String(); strings.Count(got, ",") != view.MaxNames-1 || !strings.HasSuffix(got, "c099 and 5 more") {
		t.Errorf("many clusters are %q", got)
	}
}

// TestStreamsOfViewsEnd has the rights to a view, and to a cluster of it, withdrawn.
func TestStreamsOfViewsEnd(t *testing.T) {
	w := fleetWorld(t, func(rw http.ResponseWriter, r *http.Request, view fleet.View) {
		if r.URL.Query().Get("watch") != "" {
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
			return
		}
		askAll(rw, r, view)
	})
	w.api.User("hub-token", "jane")
	rights := []string{"jane get fleetviews all", "jane get clusters/proxy cluster1", "jane create clusters/stream cluster1", "jane get clusters/proxy cluster2", "jane create clustersets/stream pair"}
	w.api.Allow(rights...)
	config := w.client().Transport.(*http.Transport).TLSClientConfig
	open := func(path, upgrade string) *openStream {
		return w.openStream(config, "GET /@all"+path+" HTTP/1.1\r\nHost: x\r\n"+upgrade, "Authorization: Bearer hub-token\r\n")
	}
	const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
	watch := open("/api/v1/pods?watch=1", "Connection: close\r\n")
	exec1 := open("/api/v1/namespaces/a/pods/b@cluster1/exec", upgrade)
	exec2 := open("/api/v1/namespaces/a/pods/b@cluster2/exec", upgrade)
	w.api.Set(func(h *hubapi.Hub) {
		h.Rules = []string{rights[0], rights[3], rights[4], "jane create clusters/stream cluster1"} // no get of cluster1
	})
	<-exec1.ended
	if !exec2.open() || !watch.open() {
		t.Errorf("after the right to cluster1 ended: exec on cluster2 is open %t, the watch %t; want both", exec2.open(), watch.open())
	}
	w.api.Set(func(h *hubapi.Hub) { h.Rules = rights[1:] })
	<-watch.ended
	<-exec2.ended
}

// TestRightsBySetForOneCluster has the right to a set in the endpoints of one cluster.
func TestRightsBySetForOneCluster(t *testing.T) {
	w := fleetWorld(t, askAll)
	w.api.User("hub-token", "jane")
	w.api.Allow("jane list clustersets/proxy pair", "jane get clustersets/proxy pair", "* list clusters *")
	for path, want := range map[string]int{
		"/cluster1/api/v1/pods": 200, scope.ClustersPath + "cluster2/proxy/api/v1/pods": 200, "/away/api/v1/pods": 403, "/nowhere/api/v1/pods": 403,
		"/cluster1/api/v1/namespaces/a/pods/b/exec": 403,
	} {
		if resp, body := w.ask(http.MethodGet, path, "hub-token"); resp.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", path, resp.StatusCode, body, want)
		}
	}
	if _, body := w.ask(http.MethodGet, scope.GroupPath+"/clusters", "hub-token"); !strings.Contains(body, `"cluster1"`) || strings.Contains(body, `"away"`) {
		t.Errorf("clusters %s, want those of the set", body)
	}
}
