package fleetview

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	apidiscovery "k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/discovery"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// discoveryMember is a member whose discovery is made by the code of kube-apiserver.
type discoveryMember struct {
	name    string
	handler http.Handler
	// intercept answers instead of the handler unless it returns nothing.
	intercept func(*http.Request) (*http.Response, error)

	mu       sync.Mutex
	requests map[string]int // by path
}

func (m *discoveryMember) Name() string { return m.name }
func (m *discoveryMember) UID() string  { return "uid-of-" + m.name }

func (m *discoveryMember) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	if m.requests == nil {
		m.requests = map[string]int{}
	}
	m.requests[r.URL.Path]++
	intercept := m.intercept
	m.mu.Unlock()
	if intercept != nil {
		if response, err := intercept(r); response != nil || err != nil {
			return response, err
		}
	}
	r = r.Clone(r.Context())
	r.Body = http.NoBody
	recorder := httptest.NewRecorder()
	m.handler.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}

func (m *discoveryMember) setIntercept(f func(*http.Request) (*http.Response, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.intercept = f
}

// asked returns how often the member was asked for a path.
func (m *discoveryMember) asked(path string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests[path]
}

// frozen answers nothing until the client has gone.
func frozen(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// answering answers everything with a code and a body.
func answering(code int, body string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		recorder := httptest.NewRecorder()
		recorder.WriteHeader(code)
		recorder.Body.WriteString(body)
		return recorder.Result(), nil
	}
}

// testGroup makes a group with one version of namespaced resources, each with a status.
func testGroup(name, version string, resources ...string) apidiscoveryv2.APIGroupDiscovery {
	v := apidiscoveryv2.APIVersionDiscovery{Version: version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	for _, resource := range resources {
		resource, clusterScope := strings.CutSuffix(resource, "!")
		kind := &metav1.GroupVersionKind{Group: name, Version: version, Kind: strings.ToUpper(resource[:1]) + strings.TrimSuffix(resource[1:], "s")}
		r := apidiscoveryv2.APIResourceDiscovery{
			Resource: resource, ResponseKind: kind, Scope: apidiscoveryv2.ScopeNamespace,
			SingularResource: strings.TrimSuffix(resource, "s"), Verbs: []string{"get", "list", "watch"},
			Subresources: []apidiscoveryv2.APISubresourceDiscovery{{Subresource: "status", ResponseKind: kind, Verbs: []string{"get"}}},
		}
		if clusterScope {
			r.Scope = apidiscoveryv2.ScopeCluster
		}
		v.Resources = append(v.Resources, r)
	}
	return apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}, Versions: []apidiscoveryv2.APIVersionDiscovery{v}}
}

type discoveryFormat string

const (
	aggregatedFormat discoveryFormat = "aggregated"
	v2beta1Format    discoveryFormat = "v2beta1"
	legacyFormat     discoveryFormat = "legacy"
)

func newDiscoveryMember(name, gitVersion string, format discoveryFormat, groups ...apidiscoveryv2.APIGroupDiscovery) *discoveryMember {
	mux := http.NewServeMux()
	var core, named []apidiscoveryv2.APIGroupDiscovery
	for _, group := range groups {
		if group.Name == "" {
			core = append(core, group)
		} else {
			named = append(named, group)
		}
	}
	addresses := apidiscovery.DefaultAddresses{DefaultAddress: "10.0.0.1:443"}
	root := apidiscovery.NewRootAPIsHandler(addresses, scheme.Codecs)
	lists, resources, _ := clientdiscovery.SplitGroupsAndResources(apidiscoveryv2.APIGroupDiscoveryList{Items: groups})
	for _, group := range lists.Groups {
		if group.Name != "" {
			root.AddGroup(group)
		}
	}
	for gv, list := range resources {
		path := "/apis/" + gv.String()
		if gv.Group == "" {
			path = "/api/" + gv.Version
		}
		mux.Handle(path, apidiscovery.NewAPIVersionHandler(scheme.Codecs, gv,
			apidiscovery.APIResourceListerFunc(func() []metav1.APIResource { return list.APIResources })))
	}
	mux.Handle("/apis", inFormat(format, "apis", root, named))
	mux.Handle("/api", inFormat(format, "api", apidiscovery.NewLegacyRootAPIHandler(addresses, scheme.Codecs, "/api"), core))
	mux.HandleFunc("/version", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(version.Info{GitVersion: gitVersion, Platform: name})
	})
	addOpenAPI(mux, name, resources)
	return &discoveryMember{name: name, handler: mux}
}

func inFormat(format discoveryFormat, path string, legacy http.Handler, groups []apidiscoveryv2.APIGroupDiscovery) http.Handler {
	if format == legacyFormat {
		return legacy
	}
	manager := aggregated.NewResourceManager(path)
	manager.SetGroups(groups)
	wrapped := aggregated.WrapAggregatedDiscoveryToHandler(legacy, manager, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if format == v2beta1Format {
			r = r.Clone(r.Context())
			_, accept, _ := strings.Cut(r.Header.Get("Accept"), ",")
			r.Header.Set("Accept", accept)
		}
		wrapped.ServeHTTP(w, r)
	})
}

func addOpenAPI(mux *http.ServeMux, name string, resources map[schema.GroupVersion]*metav1.APIResourceList) {
	v3 := handler3.NewOpenAPIService()
	swagger := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0", Info: &spec.Info{InfoProps: spec.InfoProps{Title: name, Version: "1"}},
		Paths: &spec.Paths{Paths: map[string]spec.PathItem{}}, Definitions: spec.Definitions{},
	}}
	for gv := range resources {
		path := "apis/" + gv.String()
		if gv.Group == "" {
			path = "api/" + gv.Version
		}
		v3.UpdateGroupVersion(path, &spec3.OpenAPI{
			Version: "3.0.0", Info: &spec.Info{InfoProps: spec.InfoProps{Title: name, Version: "1"}},
			Paths: &spec3.Paths{Paths: map[string]*spec3.Path{}},
		})
		swagger.Paths.Paths["/"+path+"/"] = spec.PathItem{}
	}
	mux.HandleFunc("/openapi/v3", v3.HandleDiscovery)
	mux.HandleFunc("/openapi/v3/", v3.HandleGroupVersion)
	handler.NewOpenAPIService(swagger).RegisterOpenAPIVersionedService("/openapi/v2", mux)
}

// discoveryView is a view for tests. Nothing in them takes as long as its timeout.
func discoveryView() fleet.View {
	return fleet.View{Name: "all", User: "ann", Timeout: time.Minute}
}

func asMembers(members ...*discoveryMember) []fleet.Member {
	all := make([]fleet.Member, len(members))
	for i, m := range members {
		all[i] = m
	}
	return all
}

// ask sends a GET to d.
func ask(t *testing.T, d *discovery.Discovery, view fleet.View, members []fleet.Member, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	recorder := httptest.NewRecorder()
	d.Serve(recorder, r, view, members)
	return recorder.Result()
}
