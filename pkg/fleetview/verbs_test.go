package fleetview

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
)

// verb is a request, and its code from a view of two clusters that are kube-apiservers, and from
// one of these.
type verb struct {
	request, contentType, accept, body string
	view, api                          int
	// why the codes differ; empty if they are the same.
	why string
}

const (
	web        = "/api/v1/namespaces/shop/pods/web"
	newPod     = `{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "new@a"}}`
	samePod    = `{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web@a"}}`
	merging    = "application/merge-patch+json"
	applying   = "application/apply-patch+yaml"
	cbor       = "application/cbor"
	asTable    = "application/json;as=Table;g=meta.k8s.io;v=v1"
	asPartial  = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	asPartials = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	named      = "the view has many clusters, and the request names none"
	onlyJSON   = "a view writes JSON and YAML; clients that prefer protobuf accept JSON too"
)

// methods are requests by method.
var methods = []verb{
	{request: "GET " + web + "@a", view: 200, api: 200},
	{request: "GET " + web, view: 409, api: 200, why: "both clusters have the object"},
	{request: "GET " + shop, view: 200, api: 200},
	{request: "GET " + shop + "?watch=true&timeoutSeconds=1", view: 200, api: 200},
	{request: "GET /api/v1/watch/pods", view: 404, api: 200, why: "deprecated since Kubernetes 1.11; clients watch by a parameter"},
	{request: "GET " + web + "@a?watch=true", view: 200, api: 200},
	{request: "HEAD " + shop, view: 200, api: 405, why: "as GET"},
	{request: "HEAD " + web + "@a", view: 200, api: 405, why: "as GET"},
	{request: "GET " + shop + "?limit=x", view: 400, api: 400},
	{request: "GET " + shop + "?labelSelector=!!", view: 400, api: 400},
	{request: "GET " + shop + "?resourceVersionMatch=Exact", view: 422, api: 422},
	{request: "GET " + shop + "?watch=true&sendInitialEvents=true", view: 422, api: 422},
	{request: "POST " + shop, contentType: fleet.JSONType, body: newPod, view: 201, api: 201},
	{request: "POST " + shop, contentType: fleet.JSONType, body: strings.Replace(newPod, "@a", "", 1), view: 405, api: 201, why: named},
	{request: "PUT " + web + "@a", contentType: fleet.JSONType, body: samePod, view: 200, api: 200},
	{request: "PUT " + web, contentType: fleet.JSONType, body: strings.Replace(samePod, "@a", "", 1), view: 409, api: 200, why: named},
	{request: "DELETE " + web + "@a", view: 200, api: 200},
	{request: "DELETE " + web, view: 409, api: 200, why: named},
	{request: "DELETE " + shop + "?fieldSelector=metadata.cluster%3Da", view: 200, api: 200},
	{request: "DELETE " + shop, view: 405, api: 200, why: named},

	// Nothing in the Kubernetes API has these.
	{request: "OPTIONS " + shop, view: 405, api: 405},
	{request: "OPTIONS " + web + "@a", view: 405, api: 405},
	{request: "TRACE " + shop, view: 405, api: 405},
	{request: "PURGE " + web + "@a", view: 405, api: 405},
	{request: "PUT " + shop, contentType: fleet.JSONType, body: samePod, view: 405, api: 405},
	{request: "PUT " + shop, contentType: fleet.JSONType, body: "{}", view: 405, api: 405},
	{request: "PATCH " + shop, contentType: merging, body: "{}", view: 405, api: 405},
	{request: "POST " + web + "@a", contentType: fleet.JSONType, body: samePod, view: 405, api: 405},
	{request: "GET /api/v1/nopes", view: 404, api: 404},
	{request: "GET /apis/nope.example.com/v1/nopes", view: 404, api: 404},
	{request: "GET /nope", view: 404, api: 404},

	// This resource lacks these, as one of metrics.k8s.io lacks watches.
	{request: "GET /api/v1/nodes", view: 200, api: 200},
	{request: "GET /api/v1/nodes?watch=true", view: 405, api: 405},
	{request: "POST /api/v1/nodes", contentType: fleet.JSONType, body: `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n@a"}}`, view: 405, api: 405},
	{request: "PUT /api/v1/nodes/n@a", contentType: fleet.JSONType, body: `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n@a"}}`, view: 405, api: 405},
	{request: "PATCH /api/v1/nodes/n@a", contentType: merging, body: "{}", view: 405, api: 405},
	{request: "DELETE /api/v1/nodes/n@a", view: 405, api: 405},
	{request: "DELETE /api/v1/nodes?fieldSelector=metadata.cluster%3Da", view: 405, api: 405},
}

// bodyTypes are requests by the type of their body.
var bodyTypes = []verb{
	{request: "POST " + shop, body: newPod, view: 201, api: 201},
	{request: "POST " + shop, contentType: "application/json; charset=utf-8", body: newPod, view: 201, api: 201},
	{request: "POST " + shop, contentType: request.YAMLType, body: newPod, view: 201, api: 201},
	{request: "POST " + shop, contentType: cbor, body: newPod, view: 415, api: 415},
	{request: "POST " + shop, contentType: "text/plain", body: newPod, view: 415, api: 415},
	{request: "POST " + shop, contentType: "application/x-www-form-urlencoded", body: newPod, view: 415, api: 415},
	{request: "POST " + shop, contentType: merging, body: newPod, view: 415, api: 415},
	{request: "POST " + shop, contentType: "/", body: newPod, view: 415, api: 415},
	{request: "POST " + shop, contentType: fleet.JSONType, body: "{", view: 400, api: 400},
	{request: "POST " + shop, contentType: fleet.JSONType, body: strings.Repeat(" ", maxBody+1), view: 413, api: 413},
	{request: "PUT " + web + "@a", contentType: cbor, body: samePod, view: 415, api: 415},
	{request: "PUT " + web + "@a", contentType: "text/plain", body: samePod, view: 415, api: 415},
	{request: "PATCH " + web + "@a", contentType: "application/json-patch+json", body: "[]", view: 200, api: 200},
	{request: "PATCH " + web + "@a", contentType: merging, body: "{}", view: 200, api: 200},
	{request: "PATCH " + web + "@a", contentType: merging + "; charset=utf-8", body: "{}", view: 200, api: 200},
	{request: "PATCH " + web + "@a", contentType: "application/strategic-merge-patch+json", body: "{}", view: 200, api: 200},
	{request: "PATCH " + web + "@a?fieldManager=me", contentType: applying, body: samePod, view: 200, api: 200},
	{request: "PATCH " + web + "@a?fieldManager=me", contentType: "application/apply-patch+cbor", body: samePod, view: 415, api: 415},
	{request: "PATCH " + web + "@a", contentType: fleet.JSONType, body: "{}", view: 415, api: 415},
	{request: "PATCH " + web + "@a", contentType: cbor, body: "{}", view: 415, api: 415},
	{request: "PATCH " + web + "@a", contentType: "application/diff", body: "{}", view: 415, api: 415},
	{request: "PATCH " + web + "@a", body: "{}", view: 415, api: 415},
	{request: "DELETE " + web + "@a", contentType: fleet.JSONType, body: `{"kind": "DeleteOptions", "apiVersion": "v1"}`, view: 200, api: 200},
	{request: "DELETE " + web + "@a", contentType: cbor, body: "{}", view: 415, api: 415},
}

// accepting are requests by what they accept.
var accepting = []verb{
	{request: "GET " + shop, accept: "application/json", view: 200, api: 200},
	{request: "GET " + shop, accept: "application/yaml", view: 200, api: 200},
	{request: "GET " + shop, accept: request.ProtobufType + ",application/json", view: 200, api: 200},
	{request: "GET " + shop, accept: request.ProtobufType, view: 406, api: 200, why: onlyJSON},
	{request: "GET " + shop, accept: cbor, view: 406, api: 406},
	{request: "GET " + shop, accept: cbor + ",application/json;q=0.9", view: 200, api: 200},
	{request: "GET " + shop, accept: "text/html", view: 406, api: 406},
	{request: "GET " + shop, accept: asTable, view: 200, api: 200},
	{request: "GET " + shop, accept: asPartials, view: 200, api: 200},
	{request: "GET " + shop, accept: strings.Replace(asTable, "Table", "Chair", 1), view: 406, api: 406},
	{request: "GET " + shop, accept: strings.Replace(asTable, "v=v1", "v=v7", 1), view: 406, api: 406},
	{request: "GET " + web + "@a", accept: asTable, view: 200, api: 200},
	{request: "GET " + web + "@a", accept: asPartial, view: 200, api: 200},
	{request: "GET " + web + "@a", accept: request.ProtobufType, view: 406, api: 200, why: onlyJSON},
	{request: "GET " + web + "@a", accept: cbor, view: 406, api: 406},
	{request: "GET " + shop + "?watch=true&timeoutSeconds=1", accept: "application/json;stream=watch", view: 200, api: 200},
	{request: "GET " + shop + "?watch=true&timeoutSeconds=1", accept: request.ProtobufType, view: 406, api: 200, why: onlyJSON},
	{request: "GET " + shop + "?watch=true&timeoutSeconds=1", accept: "application/yaml", view: 406, api: 406},
	{request: "GET " + shop + "?watch=true&timeoutSeconds=1", accept: "application/cbor-seq", view: 406, api: 406},
	{request: "GET " + shop + "?watch=true&timeoutSeconds=1", accept: asTable, view: 200, api: 200},
	{request: "POST " + shop, contentType: fleet.JSONType, accept: cbor, body: newPod, view: 406, api: 406},
	{request: "POST " + shop, contentType: fleet.JSONType, accept: "application/yaml", body: newPod, view: 201, api: 201},
	{request: "POST " + shop, contentType: fleet.JSONType, accept: asTable, body: newPod, view: 201, api: 201},
	{request: "POST " + shop, contentType: fleet.JSONType, accept: asPartial, body: newPod, view: 201, api: 201},
	{request: "PATCH " + web + "@a", contentType: merging, accept: "text/html", body: "{}", view: 406, api: 406},
	{request: "DELETE " + web + "@a", accept: cbor, view: 406, api: 406},
}

// subresources are requests for those. Streams are relayed as they are.
var subresources = []verb{
	{request: "GET " + web + "@a/status", view: 200, api: 200},
	{request: "PUT " + web + "@a/status", contentType: fleet.JSONType, body: samePod, view: 200, api: 200},
	{request: "PATCH " + web + "@a/status", contentType: merging, body: "{}", view: 200, api: 200},
	{request: "PATCH " + web + "@a/resize", contentType: merging, body: "{}", view: 200, api: 200},
	{request: "PATCH " + web + "@a/ephemeralcontainers", contentType: "application/strategic-merge-patch+json", body: "{}", view: 200, api: 200},
	{request: "GET " + web + "@a/scale", view: 200, api: 200},
	{request: "PUT " + web + "@a/scale", contentType: fleet.JSONType, body: samePod, view: 200, api: 200},
	{request: "POST " + web + "@a/eviction", contentType: fleet.JSONType, body: samePod, view: 201, api: 201},
	{request: "POST " + web + "@a/binding", contentType: fleet.JSONType, body: samePod, view: 201, api: 201},
	{request: "POST " + web + "@a/token", contentType: fleet.JSONType, body: samePod, view: 201, api: 201},
	{request: "POST " + web + "@a/eviction", contentType: cbor, body: samePod, view: 415, api: 415},
	{request: "POST " + web + "@a/status", contentType: fleet.JSONType, body: samePod, view: 405, api: 405},
	{request: "DELETE " + web + "@a/status", view: 405, api: 405},
	{request: "GET " + web + "@a/eviction", view: 405, api: 405},
	{request: "GET " + web + "@a/nope", view: 404, api: 404},
	{request: "PATCH " + web + "@a/nope", contentType: merging, body: "{}", view: 404, api: 404},
	{request: "PATCH " + web + "@a/status", contentType: "application/apply-patch+cbor", body: "{}", view: 415, api: 415},
	{request: "GET " + web + "@a/log", view: 404, api: 404},
	{request: "POST " + web + "@a/exec", view: 404, api: 404},
	{request: "GET " + web + "@a/attach", view: 404, api: 404},
	{request: "POST " + web + "@a/portforward", view: 404, api: 404},
	{request: "DELETE " + web + "@a/proxy/x", view: 404, api: 404},
	{request: "POST " + web + "/exec", view: 409, api: 404, why: named},
}

// TestVerbs sends what a kube-apiserver takes, or refuses, to a view of two. It takes the same, or
// refuses it with a code that clients know how to go on from: docs/reference/views.md has the table.
func TestVerbs(t *testing.T) {
	for _, test := range slices.Concat(methods, bodyTypes, accepting, subresources) {
		t.Run(strings.Join([]string{test.request, test.contentType, test.accept}, " "), func(t *testing.T) {
			a := newKube(t, "a")
			view := testView()
			view.Members = testViewOf([]fleet.Member{a, newKube(t, "b")})
			view.Relay = func(w http.ResponseWriter, r *http.Request, to fleet.Member) { to.(*kube).handler.ServeHTTP(w, r) }
			h := New(Options{})
			code, body := test.send(t, test.request, test.body, func(w http.ResponseWriter, r *http.Request) { h.Serve(w, r, view) })
			if code != test.view {
				t.Errorf("the view answers %d, want %d: %.300s", code, test.view, body)
			}
			code, body = test.send(t, plain.Replace(test.request), plain.Replace(test.body), a.handler.ServeHTTP)
			if code != test.api {
				t.Errorf("a kube-apiserver answers %d, want %d: %.300s", code, test.api, body)
			}
			if (test.view != test.api) != (test.why != "") {
				t.Errorf("the codes are %d and %d, because %q", test.view, test.api, test.why)
			}
		})
	}
}

// TestCollectionIsNotChanged has a write to a collection say what is wrong with it.
func TestCollectionIsNotChanged(t *testing.T) {
	for _, method := range []string{http.MethodPut, http.MethodPatch} {
		got := New(Options{}).request(t, testView(newCluster("a"), newCluster("b")), method, shop, "{}", "Content-Type", merging)
		if want := "put the name into the path"; got.code != http.StatusMethodNotAllowed || !strings.Contains(got.body, want) {
			t.Errorf("%s of a collection: %d %s, want 405 that says %q", method, got.code, got.body, want)
		}
	}
}

func (v verb) send(t *testing.T, request, body string, to http.HandlerFunc) (int, string) {
	t.Helper()
	method, url, _ := strings.Cut(request, " ")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if body == "" {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	for name, value := range map[string]string{"Content-Type": v.contentType, "Accept": v.accept} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	recorder := httptest.NewRecorder()
	to(&hangUp{recorder, cancel}, r)
	return recorder.Code, recorder.Body.String()
}

// hangUp is a client that goes when a watch has begun.
type hangUp struct {
	*httptest.ResponseRecorder
	cancel context.CancelFunc
}

func (w *hangUp) Flush() {
	w.ResponseRecorder.Flush()
	w.cancel()
}

// TestVerbsOfOtherPaths has what a view answers itself.
func TestVerbsOfOtherPaths(t *testing.T) {
	const authorization, authentication = "/apis/authorization.k8s.io/v1/", "/apis/authentication.k8s.io/v1/"
	for _, test := range []verb{
		{request: "GET /healthz", view: 200},
		{request: "HEAD /readyz", view: 200},
		{request: "POST /livez", view: 405},
		{request: "OPTIONS /healthz", view: 405},
		{request: "POST " + authorization + "selfsubjectaccessreviews", body: "{}", view: 201},
		{request: "POST " + authorization + "namespaces/shop/localsubjectaccessreviews", body: "{}", view: 201},
		{request: "POST " + authorization + "subjectaccessreviews", body: "{}", view: 201},
		{request: "POST " + authorization + "selfsubjectrulesreviews", body: "{}", view: 201},
		{request: "POST " + authentication + "selfsubjectreviews", body: "{}", view: 201},
		{request: "POST " + authentication + "tokenreviews", body: "{}", view: 405},
		{request: "POST " + authorization + "nopereviews", body: "{}", view: 404},
		{request: "POST " + authorization + "selfsubjectaccessreviews", accept: cbor, body: "{}", view: 406},
		{request: "POST /api", view: 405},
		{request: "OPTIONS /apis", view: 405},
		{request: "PUT /apis/apps/v1", view: 405},
		{request: "DELETE /openapi/v2", view: 405},
		{request: "POST /openapi/v3", view: 405},
		{request: "PATCH /version", view: 405},
		{request: "GET /metrics", view: 404},
		{request: "GET /logs/x", view: 404},
	} {
		t.Run(fmt.Sprint(test.request, test.contentType, test.accept), func(t *testing.T) {
			status := `{"allowed": true, "resourceRules": [], "userInfo": {"username": "ann"}}`
			view := testView(reviewing("a", status, 200), reviewing("b", status, 200))
			h := New(Options{})
			if code, body := test.send(t, test.request, test.body, func(w http.ResponseWriter, r *http.Request) { h.Serve(w, r, view) }); code != test.view {
				t.Errorf("the view answers %d, want %d: %.300s", code, test.view, body)
			}
		})
	}
}
