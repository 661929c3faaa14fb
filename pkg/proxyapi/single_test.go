package proxyapi

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// TestSingleViews says which FleetViews are of one cluster and can have no other.
func TestSingleViews(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*proxyv1alpha1.FleetViewSpec)
		want   bool
	}{
		"a name":          {func(*proxyv1alpha1.FleetViewSpec) {}, true},
		"nothing":         {func(s *proxyv1alpha1.FleetViewSpec) { s.Clusters.Names = nil }, false},
		"two names":       {func(s *proxyv1alpha1.FleetViewSpec) { s.Clusters.Names = []string{"cluster1", "gone"} }, false},
		"a set, too":      {func(s *proxyv1alpha1.FleetViewSpec) { s.Clusters.ClusterSets = []string{"empty"} }, false},
		"a selector, too": {func(s *proxyv1alpha1.FleetViewSpec) { s.Clusters.Selector = &metav1.LabelSelector{} }, false},
		"qualified":       {func(s *proxyv1alpha1.FleetViewSpec) { s.Names = proxyv1alpha1.NamesQualified }, false},
		"the rest of it is its own": {func(s *proxyv1alpha1.FleetViewSpec) {
			s.UnlistedResources = &proxyv1alpha1.FleetViewUnlistedResources{Cluster: "cluster1"}
		}, true},
		"the rest of it is of others": {func(s *proxyv1alpha1.FleetViewSpec) {
			s.UnlistedResources = &proxyv1alpha1.FleetViewUnlistedResources{Cluster: "cluster2"}
		}, false},
	} {
		views := &fakeViews{}
		v := (&world{views: views}).addView("v", "cluster1")
		tc.change(&v.Spec)
		definition, err := (&filter.Filters{Views: views}).Define(&scope.Scope{Kind: scope.View, Target: route.Target{View: "v"}})
		if err != nil {
			t.Fatal(err)
		}
		var got fleet.View
		if err := definition.Describe(&got); err != nil || got.Single != tc.want {
			t.Errorf("%s: single %t, %v; want %t", name, got.Single, err, tc.want)
		}
	}
}

// singleWorld has views of one cluster each, and clusters that keep what they were asked.
type singleWorld struct {
	*world
	mu    sync.Mutex
	asked []*http.Request // of cluster1
}

func newSingleWorld(t *testing.T, answer http.HandlerFunc) *singleWorld {
	w := &singleWorld{world: start(t, func(o *Options) { o.AllowAnonymous = false })}
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.asked = append(w.asked, r)
		w.mu.Unlock()
		answer(rw, r)
	}), "cluster1")
	w.agent("cluster2", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("cluster2 was asked %s %s", r.Method, r.RequestURI)
	}), "cluster2")
	w.addView("one", "cluster1").Spec.ClusterTimeoutSeconds = 60
	w.addView("impatient", "cluster1").Spec.ClusterTimeoutSeconds = 1
	w.addView("pods", "cluster1").Spec.Resources = []proxyv1alpha1.FleetViewResource{{Resource: "pods", Namespaces: []string{"a"}}}
	w.addView("away", "away")
	w.api.User("hub-token", "jane")
	w.api.User("eve-token", "eve")
	return w
}

// got forgets what cluster1 was asked.
func (w *singleWorld) got() []*http.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := w.asked
	w.asked = nil
	return asked
}

// TestSingleViewGrantsNothing has users who may less than the view's cluster would do for
// them, and who say that they are others. The cluster gets what is allowed, as jane, without
// her token and without what only the hub may say.
func TestSingleViewGrantsNothing(t *testing.T) {
	w := newSingleWorld(t, func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "answer") })
	w.api.Allow("* get fleetviews *", "jane get clusters/proxy cluster1", "jane list clusters/proxy cluster1", "jane list clusters/proxy away", "eve * clusters/proxy cluster2", "eve create clusters/stream cluster2")
	const pods = "/api/v1/namespaces/a/pods"
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket"}
	for _, tc := range []struct {
		token, method, path string
		header              []string
		code                int
		want                string
	}{
		{"hub-token", "GET", "/@one" + pods, nil, 200, pods},
		{"hub-token", "GET", "/@one" + pods + "/x@cluster1?a=1", nil, 200, pods + "/x?a=1"},
		{"hub-token", "GET", scope.ViewsPath + "one/proxy" + pods + "?limit=1", nil, 200, pods + "?limit=1"},
		{"hub-token", "GET", "/@one/openapi/v3", nil, 200, "/openapi/v3"},
		{"hub-token", "GET", "/@one/metrics", nil, 200, "/metrics"},
		{"hub-token", "GET", "/@pods/api/v1/pods", nil, 200, pods},
		{"hub-token", "GET", "/@pods/api/v1/namespaces/b/pods/x", nil, 404, ""},
		{"hub-token", "GET", "/@pods/api/v1/namespaces/a/secrets", nil, 404, ""},
		{"hub-token", "GET", "/@pods/metrics", nil, 404, ""},
		{"hub-token", "GET", "/@pods/api/v1/namespaces/a/pods/..%2fsecrets", nil, 400, ""},
		{"hub-token", "GET", "/@away" + pods, nil, 503, ""},
		{"hub-token", "GET", "/@one" + pods + "?fieldSelector=metadata.cluster%3Dcluster2", nil, 404, ""},
		{"hub-token", "GET", "/@one/api/v1/namespaces/a/services/s:80/proxy-service/", nil, 404, ""},
		{"hub-token", "DELETE", "/@one" + pods + "/x", nil, 403, ""},
		{"hub-token", "POST", "/@one" + pods, nil, 403, ""},
		{"hub-token", "GET", "/@one" + pods + "/x/exec", upgrade, 403, ""},
		{"hub-token", "GET", "/@one" + pods + "/x@cluster1/exec", nil, 403, ""},
		{"hub-token", "GET", "/@one/api/v1/nodes/n/proxy/run", nil, 403, ""},
		{"hub-token", "GET", "/@one/api/v1/proxy/nodes/n", nil, 403, ""},
		{"hub-token", "GET", "/@one" + pods, upgrade, 403, ""},
		{"hub-token", "GET", "/@one" + pods, []string{"Impersonate-User", "admin"}, 403, ""},
		{"eve-token", "GET", "/@one" + pods, nil, 403, ""},
		{"eve-token", "GET", "/@one" + pods + "/x@cluster2", nil, 403, ""},
		{"eve-token", "GET", "/@one/metrics", nil, 403, ""},
		{"eve-token", "GET", "/@one/api/v1//pods", nil, 403, ""},
		{"of-a-cluster", "GET", "/@one" + pods, nil, 401, ""},
		{"", "GET", "/@one" + pods, nil, 401, ""},
	} {
		header := append([]string{"X-Remote-User", "admin", "X-Remote-Group", "system:masters", "Cluster-Proxy-Agent", "true", "Cluster-Proxy-Authorization", "Bearer mine",
			"Forwarded", "for=x", "X-Forwarded-Uri", "x", "Proxy-Authorization", "Basic eDp5"}, tc.header...)
		resp, body := w.ask(tc.method, tc.path, tc.token, header...)
		asked := w.got()
		if resp.StatusCode != tc.code || (tc.want != "") != (len(asked) == 1) || tc.want == "" && len(asked) > 0 {
			t.Errorf("%q %s %s: %d %s with %d requests to the cluster, want %d", tc.token, tc.method, tc.path, resp.StatusCode, body, len(asked), tc.code)
		}
		for _, r := range asked {
			if r.RequestURI != tc.want || fmt.Sprint(r.Header["X-Remote-User"], r.Header["X-Remote-Group"]) != "[jane] [system:authenticated]" {
				t.Errorf("%s: the cluster got %s as %v %v, want %s as jane", tc.path, r.RequestURI, r.Header["X-Remote-User"], r.Header["X-Remote-Group"], tc.want)
			}
			said := fmt.Sprint(r.Header)
			for _, secret := range []string{"hub-token", "mine", "eDp5", "for=x", "admin", "masters"} {
				if strings.Contains(said, secret) {
					t.Errorf("%s: the cluster got %q of the client: %s", tc.path, secret, said)
				}
			}
		}
	}
}

// TestSingleViewTimeout has a cluster that begins no answer, and one that goes on for longer
// than the view's timeout after it began.
func TestSingleViewTimeout(t *testing.T) {
	var began atomic.Bool
	more := make(chan struct{})
	w := newSingleWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/openapi/v2":
			<-more
			_, _ = io.WriteString(rw, "begun and ended")
			return
		case r.Method == http.MethodGet && r.URL.Query().Get("watch") == "":
			<-r.Context().Done()
			return
		}
		began.Store(true)
		_, _ = io.WriteString(rw, "begun")
		_ = http.NewResponseController(rw).Flush()
		<-more
		_, _ = io.WriteString(rw, " and ended")
	})
	w.api.Allow("jane get fleetviews *", "jane * clusters/proxy *")
	type answer struct {
		code int
		body string
	}
	watched := make(chan answer, 1)
	go func() {
		got := answer{code: http.StatusGatewayTimeout}
		for got.code == http.StatusGatewayTimeout { // on a busy machine it begins late, too
			resp, body := w.ask(http.MethodGet, "/@impatient/api/v1/pods?watch=1", "hub-token")
			got = answer{resp.StatusCode, body}
		}
		watched <- got
	}()
	documents := make(chan answer, 1)
	go func() {
		resp, body := w.ask(http.MethodGet, "/@impatient/openapi/v2", "hub-token")
		documents <- answer{resp.StatusCode, body}
	}()
	eventually(t, began.Load)
	for _, path := range []string{"/api/v1/pods", "/api/v1/namespaces/a/pods/x", "/apis"} {
		if resp, body := w.ask(http.MethodGet, "/@impatient"+path, "hub-token"); resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(body, "cluster1") {
			t.Errorf("%s: %d %s, want 504 about cluster1", path, resp.StatusCode, body)
		}
	}
	close(more) // three timeouts later
	want := answer{200, "begun and ended"}
	if got := <-watched; got != want {
		t.Errorf("a watch: %v, want %v", got, want)
	}
	if got := <-documents; got != want {
		t.Errorf("the OpenAPI document: %v, want %v", got, want)
	}
}

// TestSingleViewChanges has a watch of a view that gets another cluster: it ends between two
// events, so that its client lists again.
func TestSingleViewChanges(t *testing.T) {
	w := newSingleWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, "{}\n")
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	})
	w.api.Allow("* get fleetviews *", "jane * clusters/proxy *", "ada list sessions *", "ada delete sessions *", "ada get sessions *")
	w.api.User("ada", "ada")
	for how, change := range map[string]func(){
		"another definition": func() { w.views.set("one", func(v *proxyv1alpha1.FleetView) { v.Generation++ }) },
		"an administrator": func() {
			resp, body := w.ask(http.MethodDelete, scope.GroupPath+"/sessions/"+w.aSession().Name, "ada")
			if resp.StatusCode != http.StatusOK {
				t.Errorf("ending the session: %d %s", resp.StatusCode, body)
			}
		},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/@one/api/v1/pods?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer hub-token")
		resp, err := w.client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewReader(resp.Body)
		if line, err := reader.ReadString('\n'); err != nil || line != "{}\n" {
			t.Fatalf("the first event is %q, %v", line, err)
		}
		change()
		rest, err := io.ReadAll(reader)
		resp.Body.Close()
		if err != nil || strings.Contains(string(rest), "ended by an administrator") != (how == "an administrator") {
			t.Errorf("%s ends the watch with %q, %v; want the end of the answer", how, rest, err)
		}
	}
}
