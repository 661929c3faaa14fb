package fleetview

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// TestAnswersNameObjectsAsAsked wants NAME@CLUSTER where the request says so: kubectl asks
// for logs and the like by the name in the answer to its get.
func TestAnswersNameObjectsAsAsked(t *testing.T) {
	a := newCluster("a", shop+"/web", shop+"/only")
	b := newCluster("b", shop+"/web")
	pod := func(name string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `","namespace":"shop"}}`
	}
	const noted = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"noted","namespace":"shop","annotations":{"` + fleet.AnnotationCluster + `":"b"}}}`
	h, view := New(Options{}), testView(a, b)
	view.Writes = fleet.WritesAny
	for name, test := range map[string]struct{ method, url, contentType, body, want string }{
		"get":                {http.MethodGet, shop + "/web@b", "", "", "web@b"},
		"get by plain name":  {http.MethodGet, shop + "/only", "", "", "only"},
		"patch":              {http.MethodPatch, shop + "/web@b", "application/merge-patch+json", `{"metadata":{"labels":{"x":"y"}}}`, "web@b"},
		"patch, plain":       {http.MethodPatch, shop + "/only", "application/merge-patch+json", `{"metadata":{"labels":{"x":"y"}}}`, "only"},
		"create":             {http.MethodPost, shop, fleet.JSONType, pod("new@b"), "new@b"},
		"create, annotation": {http.MethodPost, shop, fleet.JSONType, noted, "noted"},
	} {
		got := h.request(t, view, test.method, test.url, test.body, "Content-Type", test.contentType)
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal([]byte(got.body), &object); got.code >= 300 || err != nil || object.Name != test.want {
			t.Errorf("%s: got %d %q, %v; want the name %q", name, got.code, got.body, err, test.want)
		}
	}
}

// TestNamesOfNoCluster names a cluster that the view does not have, where only a cluster can
// be meant: an empty answer would say that there is nothing.
func TestNamesOfNoCluster(t *testing.T) {
	h, view := New(Options{}), testView(newCluster("a", shop+"/web"))
	view.Writes = fleet.WritesAny
	for name, test := range map[string]struct{ method, url string }{
		"list of a namespace":      {http.MethodGet, "/api/v1/namespaces/shop@nope/pods"},
		"watch of a namespace":     {http.MethodGet, "/api/v1/namespaces/shop@nope/pods?watch=true"},
		"get in a namespace":       {http.MethodGet, "/api/v1/namespaces/shop@nope/pods/web"},
		"deletion in a namespace":  {http.MethodDelete, "/api/v1/namespaces/shop@nope/pods/web"},
		"deletion of a collection": {http.MethodDelete, "/api/v1/namespaces/shop@nope/pods"},
		"pods of a node":           {http.MethodGet, "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode%40nope"},
		"a namespace as a field":   {http.MethodGet, "/api/v1/pods?fieldSelector=metadata.namespace%3Dshop%40nope"},
	} {
		got := h.request(t, view, test.method, test.url, "")
		if want := `view \"all\" has no cluster \"nope\" that you may reach; it has: a`; got.code != http.StatusNotFound || !strings.Contains(got.body, want) {
			t.Errorf("%s: got %d %q, want 404 with %q", name, got.code, got.body, want)
		}
	}
}

// TestObjectsOfNoCluster names a cluster that the view does not have behind an object's name, which
// some kinds may have in it. No cluster has the object, and the answer says which clusters there are.
func TestObjectsOfNoCluster(t *testing.T) {
	for _, writes := range []fleet.Writes{fleet.WritesNamed, fleet.WritesAny} {
		h, view := New(Options{}), testView(newCluster("a", shop+"/web"), newCluster("b", shop+"/web"))
		view.Writes = writes
		for name, test := range map[string]struct{ method, url string }{
			"get":      {http.MethodGet, shop + "/web@nope"},
			"deletion": {http.MethodDelete, shop + "/web@nope"},
			"exec":     {http.MethodPost, shop + "/web@nope/exec?command=id"},
			"log":      {http.MethodGet, shop + "/web@nope/log"},
		} {
			got := h.request(t, view, test.method, test.url, "")
			if want := `view \"all\" has no cluster \"nope\" that you may reach; it has: a, b`; got.code != http.StatusNotFound || !strings.Contains(got.body, want) {
				t.Errorf("writes %v, %s: got %d %q, want 404 with %q", writes, name, got.code, got.body, want)
			}
		}
		if got := h.request(t, view, http.MethodGet, shop+"/absent", ""); strings.Contains(got.body, "cluster") {
			t.Errorf("a name without a cluster: %q speaks of clusters", got.body)
		}
		if got, want := h.request(t, view, http.MethodGet, shop+"/absent@b", ""), `not found on cluster \"b\"`; got.code != http.StatusNotFound || !strings.Contains(got.body, want) {
			t.Errorf("a name of a cluster: got %d %q, want 404 with %q", got.code, got.body, want)
		}
	}
}
