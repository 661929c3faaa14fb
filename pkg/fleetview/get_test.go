package fleetview

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// object is the object that a response has.
func (r response) object(t testing.TB) object {
	t.Helper()
	var o object
	if err := json.Unmarshal([]byte(r.body), &o); err != nil || o["metadata"] == nil {
		t.Fatalf("got %d %q, want an object", r.code, r.body)
	}
	return o
}

func (o object) cluster() any {
	annotations, _ := o.meta()["annotations"].(map[string]any)
	return annotations[fleet.AnnotationCluster]
}

func TestGet(t *testing.T) {
	const roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	a, b, c := newCluster("a", shop+"/web", shop+"/one", roles+"/ann@example.com", roles+"/joe"), newCluster("b", shop+"/web"), newCluster("c", "/api/v1/namespaces/shop")
	away, denied := newCluster("away").failing(away), newCluster("denied").failing(refusing(403))
	strict := testView(a, b, away)
	strict.FailWhenUnreachable = true
	tests := map[string]struct {
		view fleet.View
		path string
		code int
		// want is the cluster or what the message says.
		want string
	}{
		"of a cluster":                 {testView(a, b, c), shop + "/web@b", 200, "b"},
		"of a cluster, encoded":        {testView(a, b, c), shop + "/web%40b", 200, "b"},
		"of one":                       {testView(a, b, c), shop + "/one", 200, "a"},
		"of several":                   {testView(a, b, c), shop + "/web", 409, "web@a, web@b"},
		"of none":                      {testView(a, b, c), shop + "/none", 404, `"none" not found`},
		"of a cluster without it":      {testView(a, b, c), shop + "/one@b", 404, `"one" not found`},
		"one, and one is silent":       {testView(a, b, away), shop + "/one", 200, "a"},
		"none, and one is silent":      {testView(a, b, away), shop + "/none", 503, "no tunnel since 10:02"},
		"of a silent cluster":          {testView(a, b, away), shop + "/one@away", 503, "no tunnel since 10:02"},
		"one is forbidden":             {testView(a, denied), shop + "/none", 403, "user ann"},
		"all are forbidden":            {testView(denied), shop + "/one", 403, "user ann"},
		"strict":                       {strict, shop + "/one", 503, "no tunnel"},
		"strict, of a cluster":         {strict, shop + "/one@a", 200, "a"},
		"a name with an @":             {testView(a, b), roles + "/ann@example.com", 200, "a"},
		"a name with an @, of cluster": {testView(a, b), roles + "/ann@example.com@a", 200, "a"},
		"no such cluster":              {testView(a, b), shop + "/one@x", 404, `"one@x" not found`},
		"a namespace":                  {testView(a, b, c), "/api/v1/namespaces/shop@c", 200, "c"},
		"with watch in its query":      {testView(a, b, c), shop + "/web@b?watch=true", 200, "b"},
	}
	for name, test := range tests {
		got := New(Options{}).request(t, test.view, http.MethodGet, test.path, "")
		switch {
		case got.code != test.code:
			t.Errorf("%s: got %d %q, want %d", name, got.code, got.body, test.code)
		case got.code != http.StatusOK && !strings.Contains(got.status.Message, test.want):
			t.Errorf("%s: got %q, want %q", name, got.status.Message, test.want)
		case got.code == http.StatusOK:
			o := got.object(t)
			v, err := version.Parse(o.version())
			if o.cluster() != test.want || err != nil || v.Cluster != version.Number("uid-of-"+test.want) {
				t.Errorf("%s: got %q, want an object of %s", name, got.body, test.want)
			}
			if warned := len(got.warnings) == 1; warned != (name == "one, and one is silent") {
				t.Errorf("%s: got Warnings %q", name, got.warnings)
			}
		}
	}
}

func TestAmbiguousGet(t *testing.T) {
	got := New(Options{}).request(t, testView(newCluster("a", pods(1)...), newCluster("b", pods(1)...)), http.MethodGet, shop+"/web-0000", "")
	var causes []string
	for _, cause := range got.status.Details.Causes {
		causes = append(causes, cause.Message)
	}
	if diff := cmp.Diff([]string{"web-0000@a", "web-0000@b"}, causes); diff != "" || got.status.Reason != metav1.StatusReasonBadRequest {
		t.Errorf("got reason %q; causes (-want +got):\n%s", got.status.Reason, diff)
	}
}

func TestAccept(t *testing.T) {
	a := newCluster("a", shop+"/web", "/apis/example.com/v1/namespaces/shop/widgets/w")
	b := newCluster("b", shop+"/db")
	const table, metadata = "application/json;as=Table;v=v1;g=meta.k8s.io", request.ProtobufType + ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	tests := map[string]struct {
		accept, path string
		code         int
		contentType  string
	}{
		"none":              {"", shop, 200, fleet.JSONType},
		"any":               {"*/*", shop, 200, fleet.JSONType},
		"a browser's":       {"text/html,*/*;q=0.8", shop, 200, fleet.JSONType},
		"only protobuf":     {request.ProtobufType, shop, 406, fleet.JSONType},
		"protobuf first":    {request.ProtobufType + "," + fleet.JSONType, shop, 200, fleet.JSONType},
		"protobuf, a page":  {request.ProtobufType + "," + fleet.JSONType, shop + "?limit=5", 200, fleet.JSONType},
		"metadata":          {metadata + "," + strings.Replace(metadata, request.ProtobufType, fleet.JSONType, 1), shop + "?limit=5", 200, fleet.JSONType},
		"metadata of CRs":   {"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "/apis/example.com/v1/widgets", 200, fleet.JSONType},
		"protobuf or any":   {request.ProtobufType + ", */*", shop + "?limit=5", 200, fleet.JSONType},
		"watch in protobuf": {request.ProtobufType, shop + "?watch=true", 406, fleet.JSONType},
		"an object":         {request.ProtobufType + "," + fleet.JSONType, shop + "/web@a", 200, fleet.JSONType},
		"an object, only":   {request.ProtobufType, shop + "/web@a", 406, fleet.JSONType},
		"a table of one":    {table, shop + "/web", 200, fleet.JSONType},
		"YAML":              {"application/yaml", shop, 200, request.YAMLType},
		"YAML of an object": {"application/yaml", shop + "/web", 200, request.YAMLType},
		"HTML":              {"text/html", shop, 406, fleet.JSONType},
		"unknown kind":      {"application/json;as=Chair;v=v1;g=meta.k8s.io", shop, 406, fleet.JSONType},
		"protobuf tables":   {request.ProtobufType + ";as=Table;v=v1;g=meta.k8s.io", shop, 406, fleet.JSONType},
		"CBOR":              {"application/cbor,application/json;q=0.9", shop, 200, fleet.JSONType},
		"watch in HTML":     {"text/html", shop + "?watch=true", 406, fleet.JSONType},
	}
	for name, test := range tests {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			got := New(Options{}).request(t, testView(a, b), method, test.path, "", "Accept", test.accept)
			if got.code != test.code || got.header.Get("Content-Type") != test.contentType {
				t.Errorf("%s %s: got %d as %q, want %d as %q: %.300q", method, name, got.code, got.header.Get("Content-Type"), test.code, test.contentType, got.body)
			}
		}
	}
	got := New(Options{}).request(t, testView(a, b), http.MethodGet, shop+"/web", "", "Accept", table)
	if diff := cmp.Diff([]string{"web@a"}, got.names()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestQueryAndHeaderOfReads(t *testing.T) {
	a := newCluster("a", shop+"/web")
	h := New(Options{})
	at := h.clock.Now()
	for url, want := range map[string]string{
		shop + "/web?pretty=true":                       shop + "/web?pretty=true",
		shop + "?labelSelector=app%3Dweb&pretty=true":   shop + "?labelSelector=app%3Dweb&pretty=true",
		shop + "/web@a?resourceVersion=0":               shop + "/web?resourceVersion=0",
		shop + "/web@a?resourceVersion=" + at.String():  shop + "/web",
		"/api/v1/pods?timeoutSeconds=5&watch=false":     "/api/v1/pods?timeoutSeconds=5&watch=false",
		shop + "?fieldSelector=metadata.name%3Dweb%40a": shop + "?fieldSelector=metadata.name%3Dweb",
	} {
		got := h.request(t, testView(a), http.MethodGet, url, "", "Authorization", "Bearer secret", "Cookie", "secret", "Impersonate-User", "root", "X-Remote-User", "root")
		asked := a.asked()
		if got.code != http.StatusOK || len(asked) != 1 || asked[0].url != want {
			t.Errorf("%s: got %d, the member was asked %+v, want %q", url, got.code, asked, want)
		}
		for name := range asked[0].header {
			if name != "Accept" {
				t.Errorf("%s: the member got header %q", url, name)
			}
		}
	}
}

// TestGetBesideOthers reads an object that others may have too: a Warning has what they did.
func TestGetBesideOthers(t *testing.T) {
	view := testView(newCluster("a", shop+"/web"), newCluster("b").failing(refusing(http.StatusForbidden)), newCluster("c").failing(away))
	got := New(Options{}).request(t, view, http.MethodGet, shop+"/web", "")
	want := []string{
		`299 - "cluster b refused (code 403 is the answer to user ann); an object of this name may be there too"`,
		`299 - "cluster c did not answer (no tunnel since 10:02); an object of this name may be there too"`,
	}
	if diff := cmp.Diff(want, got.warnings); diff != "" || got.code != http.StatusOK {
		t.Errorf("got %d with Warnings (-want +got):\n%s", got.code, diff)
	}
}
