package proxyapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karmadav1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/karmada/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

const (
	karmadasClusters = "/apis/cluster.karmada.io/v1alpha1/clusters"
	karmadasView     = "/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy"
)

// karmadaWorld serves Karmada's API with a registry that has Pods of cluster1.
func karmadaWorld(t *testing.T, handler fleetFunc, change ...func(*Options)) *world {
	w := fleetWorld(t, handler, append(change, func(o *Options) { o.KarmadaAPI = true })...)
	w.registries.add([]string{"cluster1", "away"}, " Pod", "apps Deployment shop")
	w.api.User("hub-token", "jane")
	return w
}

// TestKarmadasRights has rights in Karmada's groups and in the addon's.
func TestKarmadasRights(t *testing.T) {
	const (
		proxying = "jane * proxying.search.karmada.io/proxy karmada"
		all      = "jane * clusters.cluster.karmada.io/proxy *"
		ours     = "jane * clusters/proxy *"
	)
	exec := []string{"Connection", "Upgrade", "Upgrade", "websocket"}
	for name, tc := range map[string]struct {
		rules  []string
		path   string
		header []string
		code   int
		want   string
	}{
		"nothing":                        {path: karmadasClusters + "/cluster1/proxy/api/v1/pods", code: 403},
		"the addon's right":              {rules: []string{ours, "jane * clusters/stream *"}, path: karmadasClusters + "/cluster1/proxy/api/v1/pods", code: 403},
		"Karmada's right":                {rules: []string{"jane list clusters.cluster.karmada.io/proxy cluster1"}, path: karmadasClusters + "/cluster1/proxy/api/v1/pods", code: 200, want: "GET /api/v1/pods of jane"},
		"Karmada's right is not ours":    {rules: []string{all}, path: scope.ClustersPath + "cluster1/proxy/api/v1/pods", code: 403},
		"nor in the direct endpoint":     {rules: []string{all}, path: "/cluster1/api/v1/pods", code: 403},
		"of another cluster":             {rules: []string{"jane * clusters.cluster.karmada.io/proxy cluster2"}, path: karmadasClusters + "/cluster1/proxy/api/v1/pods", code: 403},
		"of no cluster":                  {rules: []string{all}, path: karmadasClusters + "/nowhere/proxy/api/v1/pods", code: 404},
		"reading is not writing":         {rules: []string{"jane get clusters.cluster.karmada.io/proxy *"}, path: karmadasClusters + "/cluster1/proxy/api/v1/pods?watch=1", code: 403},
		"reading is no exec":             {rules: []string{all}, path: karmadasClusters + "/cluster1/proxy/api/v1/namespaces/a/pods/b/exec", header: exec, code: 403},
		"the view":                       {rules: []string{proxying, all}, path: karmadasView + "/api/v1/pods", code: 200, want: "away failed"},
		"the view's clusters":            {rules: []string{proxying, "jane list clusters.cluster.karmada.io/proxy cluster1"}, path: karmadasView + "/api/v1/pods", code: 200, want: "cluster1 200 GET /api/v1/pods of jane\n"},
		"the view's clusters by set":     {rules: []string{proxying, "jane list clustersets.cluster.karmada.io/proxy pair"}, path: karmadasView + "/api/v1/pods", code: 200, want: "cluster1 200 GET /api/v1/pods of jane\n"},
		"a view grants nothing":          {rules: []string{proxying}, path: karmadasView + "/api/v1/pods", code: 200, want: "-"},
		"nor with the addon's right":     {rules: []string{proxying, ours}, path: karmadasView + "/api/v1/pods", code: 200, want: "-"},
		"clusters without the view":      {rules: []string{all}, path: karmadasView + "/api/v1/pods", code: 403},
		"the view, another verb":         {rules: []string{"jane get proxying.search.karmada.io/proxy karmada", all}, path: karmadasView + "/api/v1/pods", code: 403},
		"a view of another name":         {rules: []string{"jane * * *"}, path: "/apis/search.karmada.io/v1alpha1/proxying/other/proxy/api/v1/pods", code: 404},
		"a right to FleetViews":          {rules: []string{"jane get fleetviews *", "jane * fleetviews/proxy *", all}, path: karmadasView + "/api/v1/pods", code: 403},
		"exec in the view":               {rules: []string{proxying, all}, path: karmadasView + "/api/v1/namespaces/a/pods/b@cluster1/exec", header: exec, code: 200, want: "-"},
		"every cluster":                  {rules: []string{all}, path: karmadasClusters + "/*/proxy/api/v1/nodes", code: 200, want: "cluster2 200 GET /api/v1/nodes of jane\n"},
		"every cluster, encoded":         {rules: []string{all}, path: karmadasClusters + "/%2A/proxy/api/v1/nodes", code: 200, want: "cluster2 200 GET /api/v1/nodes of jane\n"},
		"every cluster, of one":          {rules: []string{"jane * clusters.cluster.karmada.io/proxy cluster1"}, path: karmadasClusters + "/*/proxy/api/v1/nodes", code: 403},
		"every cluster is no cluster":    {rules: []string{"jane * clusters.cluster.karmada.io/proxy cluster1", "jane list clusters.cluster.karmada.io/proxy all"}, path: karmadasClusters + "/all/proxy/api/v1/nodes", code: 404},
		"an encoded slash":               {rules: []string{all}, path: karmadasClusters + "/cluster1%2Fproxy/api/v1/nodes", code: 404},
		"a token of a cluster, the view": {path: karmadasView + "/api/v1/pods", header: []string{"Authorization", "Bearer of-a-cluster"}, code: 401},
		"a dot segment":                  {rules: []string{proxying, all}, path: karmadasView + "/api/../x", code: 400},
	} {
		t.Run(name, func(t *testing.T) {
			w := karmadaWorld(t, askAll)
			w.api.Allow(tc.rules...)
			resp, body := w.ask(http.MethodGet, tc.path, "hub-token", tc.header...)
			if resp.StatusCode != tc.code || !strings.Contains(body, strings.TrimSuffix(tc.want, "-")) || tc.want == "-" && body != "" {
				t.Errorf("answered %d %s, want %d with %q", resp.StatusCode, body, tc.code, tc.want)
			}
		})
	}
}

// TestKarmadasView is what package fleetview gets to know of the registries.
func TestKarmadasView(t *testing.T) {
	for name, tc := range map[string]struct {
		controlPlane string
		registries   [][]string
		// want is each rule with the clusters that it is of, and asked are the members.
		want  []string
		asked string
	}{
		"none": {want: []string{"/ [] []"}},
		"one": {registries: [][]string{{"cluster1", " Pod"}}, asked: "cluster1",
			want: []string{"/ [] []", "/pod [] [cluster1]", "/podes [] [cluster1]", "/pods [] [cluster1]"}},
		"a control plane": {controlPlane: "away", registries: [][]string{{"cluster1", "apps StatefulSet shop"}}, asked: "away cluster1",
			want: []string{"/ [] []", "apps/statefulset [shop] [cluster1]", "apps/statefulsetes [shop] [cluster1]", "apps/statefulsets [shop] [cluster1]"}},
		"only a control plane": {controlPlane: "cluster2", want: []string{"/ [] []"}, asked: "cluster2"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			w := fleetWorld(t, func(rw http.ResponseWriter, r *http.Request, view fleet.View) {
				for _, rule := range view.Resources {
					var of []string
					for _, cluster := range []string{"cluster1", "cluster2", "away"} {
						if rule.Clusters(cluster) {
							of = append(of, cluster)
						}
					}
					got = append(got, fmt.Sprintf("%s/%s %v %v", rule.Group, rule.Resource, rule.Namespaces, of))
				}
				if view.UnlistedCluster != tc.controlPlane || view.Qualified || !slices.Equal(view.Annotations, []string{"resource.karmada.io/cached-from-cluster"}) || view.Prefix != karmadasView {
					t.Errorf("the view is %+v", view)
				}
				askAll(rw, r, view)
			}, func(o *Options) { o.KarmadaAPI, o.KarmadaControlPlane = true, tc.controlPlane })
			for _, registry := range tc.registries {
				w.registries.add(registry[:1], registry[1:]...)
			}
			w.api.User("hub-token", "jane")
			w.api.Allow("jane * * *")
			_, body := w.ask(http.MethodGet, karmadasView+"/api/v1/pods", "hub-token")
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
			if asked := askedIn(body); asked != tc.asked {
				t.Errorf("asked %q, want %q", asked, tc.asked)
			}
		})
	}
}

// TestKarmadasViewIsUnknown has registries that are not read yet.
func TestKarmadasViewIsUnknown(t *testing.T) {
	w := karmadaWorld(t, askAll)
	w.registries.err = errors.New("the list has not been read")
	w.api.Allow("jane * * *")
	if resp, body := w.ask(http.MethodGet, karmadasView+"/api/v1/pods", "hub-token"); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "has not been read") {
		t.Errorf("answered %d %s, want 503", resp.StatusCode, body)
	}
}

// TestUnlistedClusterOutside has a FleetView whose cluster for unlisted resources has no part
// in it otherwise.
func TestUnlistedClusterOutside(t *testing.T) {
	w := fleetWorld(t, func(rw http.ResponseWriter, r *http.Request, view fleet.View) {
		if of := view.Resources[0].Clusters; of == nil || of("cluster2") || !of("cluster1") {
			t.Error("the rule is of cluster2, or not of cluster1")
		}
		askAll(rw, r, view)
	})
	view := w.addView("some", "cluster1")
	view.Spec.Resources = []proxyv1alpha1.FleetViewResource{{Resource: "pods"}}
	view.Spec.UnlistedResources = &proxyv1alpha1.FleetViewUnlistedResources{Cluster: "cluster2"}
	w.api.User("hub-token", "jane")
	w.api.Allow("jane get fleetviews some", "jane * clusters/proxy *")
	if _, body := w.ask(http.MethodGet, "/@some/api/v1/secrets", "hub-token"); askedIn(body) != "cluster1 cluster2" {
		t.Errorf("members %s, want both", body)
	}
}

// TestKarmadasClusters lists what the user may reach by Karmada's rights.
func TestKarmadasClusters(t *testing.T) {
	w := karmadaWorld(t, askAll)
	w.api.Allow("jane list clusters.cluster.karmada.io *", "jane get clusters.cluster.karmada.io *", "jane get clusters.cluster.karmada.io/proxy cluster1", "jane get clusters/proxy *")
	_, body := w.ask(http.MethodGet, karmadasClusters, "hub-token", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	table := decode[metav1.Table](t, body)
	if len(table.Rows) != 1 || fmt.Sprint(table.Rows[0].Cells) != "[cluster1 v1.36.3 Pull True <unknown> region-of-cluster1 cloud]" {
		t.Errorf("rows %+v, want cluster1", table.Rows)
	}
	resp, body := w.ask(http.MethodGet, karmadasClusters+"/cluster1", "hub-token")
	if c := decode[karmadav1alpha1.Cluster](t, body); resp.StatusCode != 200 || c.Kind != "Cluster" || c.APIVersion != "cluster.karmada.io/v1alpha1" || c.Status.Conditions[0].Type != "Ready" {
		t.Errorf("answered %d %s, want a Cluster", resp.StatusCode, body)
	}
	for path, want := range map[string]int{"/cluster2": 404, "/nowhere": 404} {
		if resp, _ := w.ask(http.MethodGet, karmadasClusters+path, "hub-token"); resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
	_, body = w.ask(http.MethodGet, "/apis/cluster.karmada.io/v1alpha1", "hub-token")
	var resources []string
	for _, r := range decode[metav1.APIResourceList](t, body).APIResources {
		resources = append(resources, r.Name+" "+r.Kind)
	}
	if got := strings.Join(resources, ","); got != "clusters Cluster,clusters/proxy Cluster" {
		t.Errorf("discovery has %s", got)
	}
}

// TestNoKarmada has Karmada's API turned off.
func TestNoKarmada(t *testing.T) {
	w := fleetWorld(t, askAll)
	w.api.User("hub-token", "jane")
	w.api.Allow("jane * * *")
	for _, path := range []string{karmadasClusters, karmadasClusters + "/cluster1/proxy/version", karmadasView + "/api/v1/pods", registriesPath} {
		if resp, body := w.ask(http.MethodGet, path, "hub-token"); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d %s, want 404", path, resp.StatusCode, body)
		}
	}
}

// TestKarmadasObjects has package fleetview itself serve the registries of two clusters that
// have a Pod each, of the same name.
func TestKarmadasObjects(t *testing.T) {
	w := start(t, func(o *Options) { o.KarmadaAPI, o.KarmadaControlPlane = true, "cluster2" })
	w.registries.add([]string{"cluster1", "cluster2"}, " Pod")
	w.registries.add([]string{"cluster1"}, " Node", "apps Deployment shop")
	w.api.User("hub-token", "jane")
	w.api.Allow("jane * proxying.search.karmada.io/proxy karmada", "jane * clusters.cluster.karmada.io/proxy *")
	for _, cluster := range []string{"cluster1", "cluster2"} {
		w.agent(cluster, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			object := `"metadata":{"name":"web","namespace":"shop","resourceVersion":"7","uid":"` + cluster + `"}`
			switch {
			case strings.Contains(r.URL.Path, "/secrets"):
				fmt.Fprintf(rw, "secrets of %s", cluster)
			case strings.HasSuffix(r.URL.Path, "/web"):
				fmt.Fprintf(rw, `{"apiVersion":"v1","kind":"Pod",%s}`, object)
			default:
				fmt.Fprintf(rw, `{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"9"},"items":[{%s}]}`, object)
			}
		}), cluster)
	}
	for request, want := range map[string]string{
		"GET /api/v1/pods":  `200 cluster1 cluster2`,
		"GET /api/v1/nodes": `200 cluster1`,
		"GET /apis/apps/v1/namespaces/shop/deployments":  `200 cluster1`,
		"GET /apis/apps/v1/deployments":                  `200 cluster1`,
		"GET /apis/apps/v1/namespaces/other/deployments": `404`,
		"GET /api/v1/namespaces/shop/pods/web":           `409`,
		"GET /api/v1/namespaces/shop/pods/web@cluster2":  `200 cluster2`,
		"GET /api/v1/secrets":                            `200 secrets of cluster2`,
		"POST /api/v1/namespaces/shop/pods":              `405`,
	} {
		method, path, _ := strings.Cut(request, " ")
		resp, body := w.ask(method, karmadasView+path, "hub-token", "Accept", "application/json")
		got := fmt.Sprint(resp.StatusCode)
		for _, cluster := range []string{"cluster1", "cluster2"} {
			if strings.Contains(body, `"resource.karmada.io/cached-from-cluster":"`+cluster+`"`) && strings.Contains(body, fleet.AnnotationCluster+`":"`+cluster+`"`) {
				got += " " + cluster
			}
		}
		if strings.HasPrefix(body, "secrets of") {
			got += " " + body
		}
		if got != want {
			t.Errorf("%s: %s (%.300s), want %s", request, got, body, want)
		}
	}
}
