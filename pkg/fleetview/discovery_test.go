package fleetview

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/discovery"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// twoMembers are a new member and an old one with a CRD that the new one lacks.
func twoMembers(format discoveryFormat) []fleet.Member {
	return asMembers(
		newDiscoveryMember("old", "v1.28.4", format, testGroup("", "v1", "pods", "nodes!"), testGroup("example.com", "v1", "widgets")),
		newDiscoveryMember("young", "v1.36.3", aggregatedFormat, testGroup("", "v1", "pods", "nodes!", "secrets"), testGroup("apps", "v1", "deployments")),
	)
}

// serveView serves members below a prefix over HTTP, and returns a client's configuration.
func serveView(t *testing.T, prefix string, members []fleet.Member) *rest.Config {
	t.Helper()
	d := discovery.NewDiscovery()
	view := discoveryView()
	view.Prefix = prefix
	server := httptest.NewServer(http.StripPrefix(prefix, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !discovery.IsDiscovery(r.URL.Path) {
			t.Errorf("client asks for %q, want discovery", r.URL.Path)
		}
		d.Serve(w, r, view, members)
	})))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL + prefix, QPS: -1}
}

func TestDiscoveryClients(t *testing.T) {
	prefixes := []string{"", "/@all", "/apis/clusterproxy.open-cluster-management.io/v1alpha1/fleetviews/all/proxy"}
	for _, format := range []discoveryFormat{aggregatedFormat, v2beta1Format, legacyFormat} {
		for _, prefix := range prefixes {
			for _, legacyClient := range []string{"", "legacy client"} {
				t.Run(strings.Join([]string{string(format), prefix, legacyClient}, " "), func(t *testing.T) {
					client, err := clientdiscovery.NewDiscoveryClientForConfig(serveView(t, prefix, twoMembers(format)))
					if err != nil {
						t.Fatal(err)
					}
					client.UseLegacyDiscovery = legacyClient != ""
					checkDiscovery(t, client)
					checkMapper(t, client)
					checkOpenAPI(t, client)
				})
			}
		}
	}
}

func checkDiscovery(t *testing.T, client *clientdiscovery.DiscoveryClient) {
	t.Helper()
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatalf("discovering: %v", err)
	}
	got := map[string][]string{}
	for _, list := range lists {
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") {
				got[list.GroupVersion] = append(got[list.GroupVersion], r.Name)
			}
		}
	}
	want := map[string][]string{"v1": {"pods", "nodes", "secrets"}, "apps/v1": {"deployments"}, "example.com/v1": {"widgets"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	version, err := client.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.GitVersion != "v1.28.4" || version.Platform != "old" {
		t.Errorf("got version %+v, want the old member's", version)
	}
}

func checkMapper(t *testing.T, client *clientdiscovery.DiscoveryClient) {
	t.Helper()
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	for gvr, want := range map[schema.GroupVersionResource]schema.GroupVersionKind{
		{Resource: "pods"}:                         {Version: "v1", Kind: "Pod"},
		{Resource: "widgets"}:                      {Group: "example.com", Version: "v1", Kind: "Widget"},
		{Resource: "deployments", Group: "apps"}:   {Group: "apps", Version: "v1", Kind: "Deployment"},
		{Resource: "widget", Group: "example.com"}: {Group: "example.com", Version: "v1", Kind: "Widget"},
	} {
		got, err := mapper.KindFor(gvr)
		if err != nil || got != want {
			t.Errorf("kind of %v is %v, %v, want %v", gvr, got, err, want)
		}
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Kind: "Node"}, "v1")
	if err != nil || mapping.Scope.Name() != meta.RESTScopeNameRoot {
		t.Errorf("mapping of Node is %+v, %v, want a cluster's", mapping, err)
	}
}

// TestKindsAreNotTakenOver has a member, the first by name, that lists resources with the
// kinds and names of others. Clients' mappers go on to the resources that most members have.
func TestKindsAreNotTakenOver(t *testing.T) {
	core := testGroup("", "v1", "pods", "secrets")
	evil := testGroup("", "v1", "pods", "secrets", "secretz", "secret", "deployments")
	for i, kind := range map[int]string{2: "Secret", 3: "Secrets", 4: "Deploymentz"} {
		evil.Versions[0].Resources[i].ResponseKind = &metav1.GroupVersionKind{Version: "v1", Kind: kind}
	}
	evil.Versions[0].Resources[2].ShortNames = []string{"secret", "deploy"}
	apps := testGroup("apps", "v1", "deployments")
	config := serveView(t, "", asMembers(
		newDiscoveryMember("0-evil", "v1.999.0", aggregatedFormat, evil, testGroup("0", "v1", "secrets")),
		newDiscoveryMember("a", "v1.36.3", aggregatedFormat, core, apps), newDiscoveryMember("b", "v1.36.3", legacyFormat, core, apps),
	))
	client, err := clientdiscovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	cached := memory.NewMemCacheClient(client)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	for kind, want := range map[schema.GroupKind]string{{Kind: "Secret"}: "secrets", {Kind: "Pod"}: "pods", {Group: "apps", Kind: "Deployment"}: "deployments"} {
		mapping, err := mapper.RESTMapping(kind)
		if err != nil || mapping.Resource.Resource != want || mapping.Resource.Group != kind.Group {
			t.Errorf("the resource of %v is %+v, %v, want %s", kind, mapping, err, want)
		}
	}
	for name, want := range map[string]schema.GroupVersionKind{
		"secret": {Version: "v1", Kind: "Secret"}, "secrets": {Version: "v1", Kind: "Secret"}, "deployments": {Group: "apps", Version: "v1", Kind: "Deployment"},
		"deployment": {Group: "apps", Version: "v1", Kind: "Deployment"},
	} {
		if got, err := mapper.KindFor(schema.GroupVersionResource{Resource: name}); err != nil || got != want {
			t.Errorf("the kind of %q is %v, %v, want %v", name, got, err, want)
		}
	}
}

func checkOpenAPI(t *testing.T, client *clientdiscovery.DiscoveryClient) {
	t.Helper()
	paths, err := client.OpenAPIV3().Paths()
	if err != nil {
		t.Fatalf("reading /openapi/v3: %v", err)
	}
	for path, title := range map[string]string{"api/v1": "old", "apis/apps/v1": "young", "apis/example.com/v1": "old"} {
		if paths[path] == nil {
			t.Errorf("no document of %q", path)
			continue
		}
		for _, accept := range []string{runtime.ContentTypeJSON, openapi.ContentTypeOpenAPIV3PB} {
			document, err := paths[path].Schema(accept)
			if err != nil || !strings.Contains(string(document), title) {
				t.Errorf("document %q as %s is %q, %v, want the one of %q", path, accept, document, err, title)
			}
		}
	}
	swagger, err := client.OpenAPISchema()
	if err != nil {
		t.Fatalf("reading /openapi/v2: %v", err)
	}
	var got []string
	for _, path := range swagger.GetPaths().GetPath() {
		got = append(got, path.Name)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"/api/v1/", "/apis/apps/v1/", "/apis/example.com/v1/"}, got); diff != "" {
		t.Errorf("paths of /openapi/v2 (-want +got):\n%s", diff)
	}
}

func TestDiscoveryETag(t *testing.T) {
	for path, accept := range map[string]string{
		"/api": clientdiscovery.AcceptV2, "/apis": "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", "/openapi/v3": fleet.JSONType, "/openapi/v2": fleet.JSONType,
		"/openapi/v3/api/v1": fleet.JSONType,
	} {
		d, members := discovery.NewDiscovery(), twoMembers(aggregatedFormat)
		first := ask(t, d, discoveryView(), members, path, "Accept", accept)
		etag := first.Header.Get("ETag")
		if first.StatusCode != http.StatusOK || !strings.HasPrefix(etag, `"`) {
			t.Errorf("%s answers %s with ETag %q, want 200 with one", path, first.Status, etag)
		}
		second := ask(t, d, discoveryView(), members, path, "Accept", accept, "If-None-Match", etag)
		if second.StatusCode != http.StatusNotModified {
			t.Errorf("%s answers %s to its ETag, want 304", path, second.Status)
		}
	}
}

// TestDiscoveryTimeout has timeouts that are none, which a kube-apiserver refuses.
func TestDiscoveryTimeout(t *testing.T) {
	server := serveView(t, "", twoMembers(aggregatedFormat))
	for timeout, want := range map[string]int{"invalid": http.StatusBadRequest, "5": http.StatusBadRequest, "5s": http.StatusOK, "": http.StatusOK} {
		response, err := http.Get(server.Host + "/version?timeout=" + timeout)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("timeout %q is answered %d, want %d", timeout, response.StatusCode, want)
		}
	}
}

func TestDiscoveryNegotiation(t *testing.T) {
	d, members := discovery.NewDiscovery(), twoMembers(legacyFormat)
	for accept, want := range map[string]string{
		"":                                    fleet.JSONType,
		"application/vnd.kubernetes.protobuf": fleet.JSONType,
		clientdiscovery.AcceptV2 + "," + fleet.JSONType:                             clientdiscovery.AcceptV2,
		clientdiscovery.AcceptV2NoPeer + "," + fleet.JSONType:                       clientdiscovery.AcceptV2,
		"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList": "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
		fleet.JSONType + ";g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,*/*": fleet.JSONType,
	} {
		response := ask(t, d, discoveryView(), members, "/apis", "Accept", accept)
		if got := response.Header.Get("Content-Type"); got != want || response.StatusCode != http.StatusOK {
			t.Errorf("Accept %q is answered %s with %q, want 200 with %q", accept, response.Status, got, want)
		}
	}
}

func TestDiscoveryRules(t *testing.T) {
	view := discoveryView()
	view.Resources = []fleet.ResourceRule{{Resource: "pods"}, {Group: "example.com", Resource: "*"}}
	view.UnlistedCluster = "young"
	gvr := func(group, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
	}
	known := discovery.NewDiscovery().Catalog(t.Context(), view, twoMembers(aggregatedFormat), discovery.FreshFor)
	for gvr, want := range map[schema.GroupVersionResource][]string{
		gvr("", "pods"):               {"old", "young"},
		gvr("", "nodes"):              {"young"},
		gvr("example.com", "widgets"): {"old"},
		gvr("apps", "deployments"):    {"young"},
	} {
		got, _ := known.Find(gvr)
		if diff := cmp.Diff(want, got.Clusters); diff != "" {
			t.Errorf("%v (-want +got):\n%s", gvr, diff)
		}
	}
	if diff := cmp.Diff(map[string]string{"old": "v1.28.4", "young": "v1.36.3"}, known.Versions); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	view.UnlistedCluster = ""
	d, members := discovery.NewDiscovery(), twoMembers(aggregatedFormat)
	for path, want := range map[string]int{"/apis/example.com": 200, "/apis/example.com/v1": 200, "/apis/apps/v1": 404, "/apis/apps": 404,
		"/openapi/v3/apis/apps/v1": 404, "/openapi/v3/api/v1": 200, "/api/v1": 200, "/api/v2": 404} {
		if got := ask(t, d, view, members, path); got.StatusCode != want {
			t.Errorf("%s answers %s, want %d", path, got.Status, want)
		}
	}
	swagger := newSwaggerPaths(t, ask(t, d, view, members, "/openapi/v2", "Accept", fleet.JSONType))
	if diff := cmp.Diff([]string{"/api/v1/", "/apis/example.com/v1/"}, swagger); diff != "" {
		t.Errorf("paths of /openapi/v2 (-want +got):\n%s", diff)
	}
}

func TestReleases(t *testing.T) {
	for _, test := range []struct {
		a, b         string
		before, near bool
	}{
		{"v1.9.0", "v1.10.0", true, true},
		{"v1.36.3", "v1.36.9-gke.1", false, true},
		{"v1.34.1+k3s1", "v1.30.9-eks-5", false, false},
		{"nonsense", "v1.20.0", true, false},
		{"", "nonsense", false, true},
		{"v2.0.0", "v1.999.0", false, false},
	} {
		a, b := discovery.ReleaseOf(test.a), discovery.ReleaseOf(test.b)
		if a.Before(b) != test.before || a.Near(b) != test.near || b.Near(a) != test.near {
			t.Errorf("%q is before %q: %t, near: %t; want %t, %t", test.a, test.b, a.Before(b), a.Near(b), test.before, test.near)
		}
	}
}
