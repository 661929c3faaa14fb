package proxyapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/apigroup"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

func decode[T any](t *testing.T, body string) T {
	t.Helper()
	var out T
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		t.Fatalf("decoding a %T: %v: %s", out, err, body)
	}
	return out
}

func TestDiscoveryAndOpenAPI(t *testing.T) {
	w := start(t)
	w.api.User("hub-token", "jane", "devs")
	client, header := w.client(), http.Header{"Authorization": {"Bearer hub-token"}}
	_, body := get(t, client, w.url+scope.GroupPath, header)
	verbs := map[string]string{}
	for _, r := range decode[metav1.APIResourceList](t, body).APIResources {
		verbs[r.Name] = r.Kind + " " + strings.Join(r.Verbs, ",")
	}
	want := map[string]string{
		"clusters": "Cluster get,list", "clusters/identity": "ClusterIdentity get", "sessions": "Session delete,get,list",
		"clusters/proxy": "Cluster create,delete,get,patch,update", "clusters/stream": "Cluster create", "clusters/metrics": "Cluster get", "clusters/targets": "Cluster get",
	}
	if diff := cmp.Diff(want, verbs); diff != "" {
		t.Errorf("discovery (-want +got):\n%s", diff)
	}
	_, body = get(t, client, w.url+"/apis", header)
	if groups := decode[metav1.APIGroupList](t, body).Groups; len(groups) != 1 || groups[0].PreferredVersion.GroupVersion != v1alpha1.GroupVersion.String() {
		t.Errorf("groups %+v, want one of version %s", groups, v1alpha1.GroupVersion)
	}
	for path, pattern := range map[string]string{
		"/openapi/v2": `"#/definitions/([^"]+)"`,
		"/openapi/v3/apis/clusterproxy.open-cluster-management.io/v1alpha1": `"#/components/schemas/([^"]+)"`,
	} {
		resp, body := get(t, client, w.url+path, http.Header{"Authorization": {"Bearer hub-token"}, "Accept": {"application/json"}})
		refs := regexp.MustCompile(pattern).FindAllStringSubmatch(body, -1)
		if resp.StatusCode != http.StatusOK || len(refs) < 5 {
			t.Errorf("%s: %d with %d references, want 200 with 5 or more", path, resp.StatusCode, len(refs))
		}
		for _, ref := range refs {
			if !strings.Contains(body, fmt.Sprintf(`"%s":{`, ref[1])) {
				t.Errorf("%s refers to %q and does not have it", path, ref[1])
			}
		}
	}
}

func TestListShowsWhatTheCallerMayReach(t *testing.T) {
	w := start(t)
	w.api.User("one", "jane")
	w.api.User("all", "root")
	w.api.User("none", "bob")
	w.api.Allow("* list clusters *", "* get clusters *", "jane get clusters/proxy cluster1", "root get clusters/proxy *")
	client := w.client()
	for token, want := range map[string]string{"one": "cluster1", "all": "away,cluster1,cluster2", "none": ""} {
		header := http.Header{"Authorization": {"Bearer " + token}}
		_, body := get(t, client, w.url+scope.GroupPath+"/clusters", header)
		var names []string
		for _, c := range decode[v1alpha1.ClusterList](t, body).Items {
			names = append(names, c.Name)
		}
		if got := strings.Join(names, ","); got != want {
			t.Errorf("%s sees %q, want %q", token, got, want)
		}
		code := http.StatusOK
		if token == "none" {
			code = http.StatusNotFound
		}
		if resp, _ := get(t, client, w.url+scope.ClustersPath+"cluster1", header); resp.StatusCode != code {
			t.Errorf("%s gets cluster1: %d, want %d", token, resp.StatusCode, code)
		}
	}
	_, body := get(t, client, w.url+scope.GroupPath+"/clusters?fieldSelector=metadata.name%3Dcluster1", http.Header{"Authorization": {"Bearer all"}, "Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io"}})
	table := decode[metav1.Table](t, body)
	var titles []string
	for _, c := range table.ColumnDefinitions {
		titles = append(titles, strings.ToUpper(c.Name))
	}
	if got := strings.Join(titles, ","); got != "NAME,AVAILABLE,LATENCY,VERSION,LAST SEEN,REASON,CONNECTIONS" {
		t.Errorf("columns %s, want those, and REASON", got)
	}
	if len(table.Rows) != 1 || fmt.Sprint(table.Rows[0].Cells) != "[cluster1 True <none> v1.36.3 <unknown>  0]" {
		t.Errorf("rows %v, want one: cluster1 True <none> v1.36.3 <unknown> and 0", table.Rows)
	}
	for _, path := range []string{scope.GroupPath + "/clusters", scope.ClustersPath + "cluster1/identity", "/apis", "/openapi/v2"} {
		if resp, _ := get(t, client, w.url+path, http.Header{"Authorization": {"Bearer of-a-cluster"}}); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without a credential: %d, want 401", path, resp.StatusCode)
		}
	}
}

func TestAggregatedEndpoint(t *testing.T) {
	w := start(t)
	w.api.User("hub-token", "jane")
	w.api.Allow("jane list clusters/proxy cluster1", "jane get clusters/proxy cluster1", "jane create clusters/proxy cluster1")
	seen := make(chan *http.Request, 1)
	w.agent("cluster1", keeping(seen), "cluster1")
	client, header := w.client(), http.Header{"Authorization": {"Bearer hub-token"}}
	for path, want := range map[string]string{
		"cluster1/proxy/api/v1/pods?limit=500":                       "/api/v1/pods?limit=500",
		"cluster1/proxy/api/v1/namespaces/a/pods/b%2Fc?dryRun=All&a": "/api/v1/namespaces/a/pods/b%2Fc?dryRun=All&a",
		"cluster1/proxy/":       "/",
		"cluster1/proxy":        "/",
		"cluster1/proxy?a=b":    "/?a=b",
		"cluster1/proxy//x/":    "//x/",
		"cluster1/proxy/proxy/": "/proxy/",
	} {
		if resp, body := get(t, client, w.url+scope.ClustersPath+path, header); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s, want 200", path, resp.StatusCode, body)
			continue
		}
		if r := <-seen; r.RequestURI != want || r.Header.Get("X-Remote-User") != "jane" {
			t.Errorf("%s arrived as %q of %q", path, r.RequestURI, r.Header.Get("X-Remote-User"))
		}
	}
	for path, want := range map[string]int{
		"cluster2/proxy/version":       http.StatusForbidden,
		"cluster1/proxy/../../version": http.StatusBadRequest,
		"cluster1/proxy/%2e%2e/x":      http.StatusBadRequest,
		"cluster1%2fproxy/version":     http.StatusNotFound,
		"cluster1/%70roxy/version":     http.StatusNotFound,
		"cluster1/stream":              http.StatusForbidden,
		"cluster1/other":               http.StatusForbidden,
	} {
		if resp, body := get(t, client, w.url+scope.ClustersPath+path, header); resp.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", path, resp.StatusCode, body, want)
		}
	}
	if len(seen) > 0 {
		t.Errorf("the cluster saw %s", (<-seen).RequestURI)
	}
}

func TestWhoAmI(t *testing.T) {
	w := start(t)
	w.api.User("hub-token", "jane", "devs")
	w.api.Allow("jane get clusters/identity *", "jane get clusters/proxy cluster1", "jane get clusters/proxy cluster2")
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || r.RequestURI != apigroup.ReviewPath || !strings.Contains(string(body), "SelfSubjectReview") {
			t.Errorf("%s %s %s, want POST %s with a SelfSubjectReview", r.Method, r.RequestURI, body, apigroup.ReviewPath)
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(rw).Encode(authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{
			UserInfo: authenticationv1.UserInfo{Username: r.Header.Get("X-Remote-User"), Groups: r.Header["X-Remote-Group"]}}})
	}), "cluster1")
	client, header := w.client(), http.Header{"Authorization": {"Bearer hub-token"}}
	_, body := get(t, client, w.url+scope.ClustersPath+"cluster1/identity", header)
	got := decode[v1alpha1.ClusterIdentity](t, body)
	if got.Hub.Username != "jane" || got.Cluster.Username != "jane" || len(got.Cluster.Groups) != 2 || got.Kind != "ClusterIdentity" {
		t.Errorf("answered %s, want a ClusterIdentity of jane, here and there, with two groups there", body)
	}
	resp, body := get(t, client, w.url+scope.ClustersPath+"cluster2/identity", header)
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "no agent of cluster") {
		t.Errorf("without an agent: %d %s, want 503", resp.StatusCode, body)
	}
	if resp, _ := get(t, client, w.url+scope.ClustersPath+"away/identity", header); resp.StatusCode != http.StatusNotFound {
		t.Errorf("without the right: %d, want 404", resp.StatusCode)
	}
}
