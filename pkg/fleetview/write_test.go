package fleetview

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

const roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"

// writes sends writes to a view and knows which cluster got them.
type writes struct {
	h        *Handler
	view     fleet.View
	clusters []*cluster
}

func newWrites(clusters ...*cluster) writes {
	return writes{New(Options{}), testView(clusters...), clusters}
}

// send sends a write. It returns the answer, and the writes that the clusters got.
func (w writes) send(t *testing.T, method, url, contentType, body string) (response, []string) {
	t.Helper()
	got := w.h.request(t, w.view, method, url, body, "Content-Type", contentType, "Authorization", "Bearer secret", "User-Agent", "tester/1")
	var sent []string
	for _, c := range w.clusters {
		for _, asked := range c.asked() {
			if asked.method == http.MethodGet {
				continue
			}
			sent = append(sent, c.name)
			for name := range asked.header {
				if name != "Accept" && name != "Content-Type" && name != "User-Agent" {
					t.Errorf("%s %s: the member got header %q", method, url, name)
				}
			}
		}
	}
	return got, sent
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	encoded, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

func TestCreate(t *testing.T) {
	named := func(name string) string {
		return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q}}`, name)
	}
	annotated := func(cluster string) string {
		return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"new","annotations":{%q:%q}}}`, fleet.AnnotationCluster, cluster)
	}
	tests := map[string]struct {
		path, body string
		code       int
		// want is the cluster or what the message says.
		want string
	}{
		"name@cluster":       {shop, named("new@b"), 201, "b"},
		"annotation":         {shop, annotated("b"), 201, "b"},
		"annotation of none": {shop, annotated("x"), 404, `no cluster "x"`},
		"neither":            {shop, named("new"), 405, "metadata.name NAME@CLUSTER, or by annotation " + fleet.AnnotationCluster},
		"name@no cluster":    {shop, named("new@x"), 405, `view "all" has no cluster "x" that you may reach; it has: a, b: say which one by metadata.name NAME@CLUSTER`},
		"no JSON":            {shop, "pod", 400, "no JSON"},
		"no object":          {shop, `[]`, 405, "NAME@CLUSTER"},
		"too large":          {shop, strings.Repeat(" ", maxBody+1), 413, "3145728"},
		"version":            {shop, `{"metadata":{"name":"new@b","resourceVersion":"5"}}`, 400, "not one of a fleet view"},
		"twice":              {shop, `{"metadata":{"name":"new@b","name":"new@b"}}`, 400, "given twice"},
		"a name with an @":   {roles, `{"metadata":{"name":"ann@example.com","annotations":{"` + fleet.AnnotationCluster + `":"a"}}}`, 201, "a"},
		"name @ and cluster": {roles, `{"metadata":{"name":"ann@example.com@a"}}`, 201, "a"},
	}
	for name, test := range tests {
		w := newWrites(newCluster("a"), newCluster("b"))
		got, sent := w.send(t, http.MethodPost, test.path, fleet.JSONType, test.body)
		if got.code != test.code || got.code != 201 && !strings.Contains(got.status.Message, test.want) {
			t.Errorf("%s: got %d %q, want %d with %q", name, got.code, got.body, test.code, test.want)
		}
		if got.code == 201 {
			if diff := cmp.Diff([]string{test.want}, sent); diff != "" || got.object(t).cluster() != test.want {
				t.Errorf("%s: got %q; clusters (-want +got):\n%s", name, got.body, diff)
			}
		} else if len(sent) > 0 {
			t.Errorf("%s: the write was sent to %q, want none", name, sent)
		}
	}
	// A view that happens to have one cluster needs no name if it takes any write, but takes none of others.
	w := newWrites(newCluster("a"))
	if got, sent := w.send(t, http.MethodPost, shop, fleet.JSONType, named("new")); got.code != 405 || len(sent) != 0 {
		t.Errorf("one cluster that is not named: got %d %q, want 405", got.code, got.body)
	}
	w.view.Writes = fleet.WritesAny
	if got, sent := w.send(t, http.MethodPost, shop+"?dryRun=All&fieldManager=x&fieldValidation=Strict", fleet.JSONType, named("new")); got.code != 201 || len(sent) != 1 {
		t.Errorf("one cluster: got %d %q", got.code, got.body)
	}
	if got, sent := w.send(t, http.MethodPost, shop, fleet.JSONType, annotated("b")); got.code != 404 || len(sent) != 0 {
		t.Errorf("one cluster, annotation of another: got %d %q", got.code, got.body)
	}
}

// TestVersionOfAWriteIsOfAfterIt has a watch show a change of somebody else while a write is on its
// way. Versions of one resource grow, and the write comes later.
func TestVersionOfAWriteIsOfAfterIt(t *testing.T) {
	a := newCluster("a", shop+"/web")
	w := newWrites(a, newCluster("b"))
	var event int64
	a.fault = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			event = w.h.clock.Next()
		}
		return false
	}
	got, _ := w.send(t, http.MethodPut, shop+"/web@a", fleet.JSONType, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web@a"}}`)
	answered, err := version.Parse(got.object(t).version())
	if got.code != http.StatusOK || err != nil || answered.Time <= event {
		t.Errorf("got %d %q, %v: its time is %d, want more than that of an event before the write, %d", got.code, got.body, err, answered.Time, event)
	}
}

func TestCreateInProtobuf(t *testing.T) {
	w := newWrites(newCluster("a"), newCluster("b"))
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "new@b"}}
	var body bytes.Buffer
	if err := inProtobuf.Encode(runtime.Object(pod), &body); err != nil {
		t.Fatal(err)
	}
	if got, sent := w.send(t, http.MethodPost, shop, request.ProtobufType, body.String()); got.code != 201 || strings.Join(sent, " ") != "b" {
		t.Errorf("got %d %q, sent to %q, want b", got.code, got.body, sent)
	}
	if got, _ := w.send(t, http.MethodPost, shop, "application/cbor", "x"); got.code != http.StatusUnsupportedMediaType {
		t.Errorf("CBOR without a cluster: got %d, want 415", got.code)
	}
	if got, _ := w.send(t, http.MethodPut, shop+"/new@b", "application/cbor", "x"); got.code != http.StatusUnsupportedMediaType {
		t.Errorf("CBOR: got %d, want 415", got.code)
	}
}

func TestUpdate(t *testing.T) {
	for _, qualified := range []bool{false, true} {
		a, b := newCluster("a", shop+"/web", shop+"/one"), newCluster("b", shop+"/web")
		w := newWrites(a, b)
		w.view.Qualified = qualified
		of := func(path string) object { return w.h.request(t, w.view, http.MethodGet, path, "").object(t) }
		web, one := of(shop+"/web@b"), of(shop+"/one")
		tests := []struct {
			name, path string
			body       any
			code       int
			want       string
		}{
			{"of a cluster", shop + "/web@b", web, 200, "b"},
			{"with a former version", shop + "/web@b", web, 409, "modified"},
			{"by plain name, with the annotation", shop + "/one", one, 200, "a"},
			{"by the annotation", shop + "/web", object{"metadata": map[string]any{"name": "web", "annotations": map[string]any{fleet.AnnotationCluster: "b"}}}, 200, "b"},
			{"of several", shop + "/web", object{"metadata": map[string]any{"name": "web"}}, 409, "web@a, web@b"},
			{"of none", shop + "/none", object{"metadata": map[string]any{"name": "none"}}, 404, "not found"},
			{"with another cluster's version", shop + "/one@a", object{"metadata": map[string]any{"name": "one", "resourceVersion": web.version()}}, 409, `not one of an object of cluster "a"`},
			{"with a member's version", shop + "/web@b", object{"metadata": map[string]any{"name": "web", "resourceVersion": "101"}}, 400, "not one of a fleet view"},
			{"with an unknown version", shop + "/web@b", object{"metadata": map[string]any{"name": "web", "resourceVersion": version.Version{Time: 1_700_000_000_000_000, Cluster: version.Number("uid-of-b")}.String()}}, 409, "read the object again"},
			{"of another name", shop + "/web@b", object{"metadata": map[string]any{"name": "web@a"}}, 400, `clusters "b" and "a"`},
			{"of status", shop + "/web@b/status", object{"metadata": map[string]any{"name": "web"}}, 200, "b"},
		}
		for _, test := range tests {
			got, sent := w.send(t, http.MethodPut, test.path, fleet.JSONType, toJSON(t, test.body))
			if got.code != test.code || got.code != 200 && !strings.Contains(got.status.Message, test.want) {
				t.Errorf("qualified %v, %s: got %d %q, want %d with %q", qualified, test.name, got.code, got.body, test.code, test.want)
			}
			if got.code != 200 {
				continue
			}
			o := got.object(t)
			if o.cluster() != test.want || strings.Join(sent, " ") != test.want || strings.HasSuffix(o.name(), "@"+test.want) != (qualified || strings.Contains(test.path, "@")) {
				t.Errorf("qualified %v, %s: got %q, sent to %q, want %s", qualified, test.name, got.body, sent, test.want)
			}
		}
	}
}

func TestPatch(t *testing.T) {
	const merged, json6902, strategic, apply = "application/merge-patch+json", "application/json-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"
	a, b := newCluster("a", shop+"/web", shop+"/one"), newCluster("b", shop+"/web")
	w := newWrites(a, b)
	v := w.h.request(t, w.view, http.MethodGet, shop+"/web@b", "").object(t).version()
	wrong := w.h.request(t, w.view, http.MethodGet, shop+"/web@a", "").object(t).version()
	tests := []struct {
		name, path, contentType, body string
		code                          int
		want                          string
	}{
		{"other version", shop + "/web@b", merged, `{"metadata":{"resourceVersion":"` + wrong + `"}}`, 409, "read the object again"},
		{"merge with version", shop + "/web@b", merged, `{"metadata":{"resourceVersion":"` + v + `","labels":{"a":"b"}}}`, 200, "b"},
		{"merge with a former one", shop + "/web@b", merged, `{"metadata":{"resourceVersion":"` + v + `","labels":{"a":"b"}}}`, 409, "modified"},
		{"merge", shop + "/one@a", merged, `{"metadata":{"labels":{"a":"b"}}}`, 200, "a"},
		{"strategic", shop + "/one@a", strategic, `{"metadata":{"labels":{"a":"c"}}}`, 200, "a"},
		{"JSON patch", shop + "/web@b", json6902, `[{"op":"add","path":"/metadata/labels","value":{"a":"d"}}]`, 200, "b"},
		{"JSON patch of several", shop + "/web", json6902, `[{"op":"add","path":"/metadata/labels","value":{"a":"d"}}]`, 409, "web@a, web@b"},
		{"apply", shop + "/web@b", apply, "metadata:\n  name: web\n  labels: {x: y}\n", 200, "b"},
		{"apply by the name in the body", shop + "/web", apply, "metadata:\n  name: web@b\n", 200, "b"},
		{"apply by the annotation", shop + "/new", apply, "metadata:\n  name: new\n  annotations: {" + fleet.AnnotationCluster + ": b}\n", 200, "b"},
		{"apply creates", shop + "/newer@a", apply, "metadata:\n  name: newer\n", 200, "a"},
		{"apply of none", shop + "/nowhere", apply, "metadata:\n  name: nowhere\n", 404, "not found"},
		{"no YAML", shop + "/web@b", apply, "\t{", 400, "reading YAML"},
		{"scale", shop + "/one@a/scale", merged, `{"spec":{"replicas":3}}`, 201, "a"},
	}
	for _, test := range tests {
		got, sent := w.send(t, http.MethodPatch, test.path, test.contentType, test.body)
		if got.code != test.code || got.code >= 300 && !strings.Contains(got.status.Message, test.want) {
			t.Errorf("%s: got %d %q, want %d with %q", test.name, got.code, got.body, test.code, test.want)
		}
		if got.code < 300 && strings.Join(sent, " ") != test.want {
			t.Errorf("%s: sent to %q, want %s", test.name, sent, test.want)
		}
	}
}

func TestDelete(t *testing.T) {
	a, b := newCluster("a", shop+"/web", shop+"/one"), newCluster("b", shop+"/web", shop+"/two")
	w := newWrites(a, b)
	web := w.h.request(t, w.view, http.MethodGet, shop+"/web@b", "").object(t)
	if got, _ := w.send(t, http.MethodDelete, shop+"/one@a?propagationPolicy=Foreground", "", ""); got.code != 200 {
		t.Errorf("by name: got %d %q", got.code, got.body)
	}
	if got, sent := w.send(t, http.MethodDelete, shop+"/web", "", ""); got.code != 409 || len(sent) != 0 {
		t.Errorf("of several: got %d %q", got.code, got.body)
	}
	b.set(shop+"/web", nil)
	options := fmt.Sprintf(`{"preconditions":{"resourceVersion":%q}}`, web.version())
	if got, sent := w.send(t, http.MethodDelete, shop+"/web@b", fleet.JSONType, options); got.code != 409 || len(sent) != 1 {
		t.Errorf("former version: got %d %q", got.code, got.body)
	}
	web = w.h.request(t, w.view, http.MethodGet, shop+"/web@b", "").object(t)
	options = fmt.Sprintf(`{"preconditions":{"resourceVersion":%q,"uid":%q}}`, web.version(), web.meta()["uid"])
	if got, _ := w.send(t, http.MethodDelete, shop+"/web@b", fleet.JSONType, options); got.code != 200 {
		t.Errorf("preconditions: got %d %q", got.code, got.body)
	}
	if got, sent := w.send(t, http.MethodDelete, shop, "", ""); got.code != 405 || len(sent) != 0 || !strings.Contains(got.status.Message, "metadata.cluster=CLUSTER") {
		t.Errorf("all: got %d %q, want 405", got.code, got.body)
	}
	got, sent := w.send(t, http.MethodDelete, shop+"?fieldSelector=metadata.cluster%3Db", "", "")
	if diff := cmp.Diff([]string{"two@b"}, got.names()); diff != "" || strings.Join(sent, " ") != "b" {
		t.Errorf("all of b: got %d %q, sent to %q; names (-want +got):\n%s", got.code, got.body, sent, diff)
	}
}

func TestWritesToMissingClusters(t *testing.T) {
	a, gone := newCluster("a", shop+"/web"), newCluster("gone").failing(away)
	w := newWrites(a, gone)
	for name, test := range map[string]struct {
		method, url, body string
		code              int
		want              string
		// retry says that clients are to repeat the request by themselves.
		retry bool
	}{
		"by plain name":   {http.MethodDelete, shop + "/web", "", 503, "web@a", true},
		"by cluster":      {http.MethodDelete, shop + "/web@a", "", 200, "", false},
		"to it":           {http.MethodDelete, shop + "/web@gone", "", 503, "may have done what was asked", false},
		"create there":    {http.MethodPost, shop, `{"metadata":{"name":"x@gone"}}`, 503, "may have done", false},
		"delete all of b": {http.MethodDelete, shop + "?fieldSelector=metadata.cluster%3Dmissing", "", 503, "no tunnel since 10:02", false},
		"method":          {http.MethodTrace, shop + "/web@a", "", 405, "TRACE", false},
		"options":         {http.MethodOptions, shop, "", 405, "OPTIONS", false},
	} {
		w.view = testView(a, gone, newCluster("missing").failing(away))
		w.view.Writes = fleet.WritesAny
		a.set(shop+"/web", nil)
		got, _ := w.send(t, test.method, test.url, fleet.JSONType, test.body)
		if got.code != test.code || !strings.Contains(got.status.Message, test.want) || test.method == http.MethodTrace && got.header.Get("Allow") == "" {
			t.Errorf("%s: got %d %q, want %d with %q", name, got.code, got.body, test.code, test.want)
		}
		if retry := got.header.Get("Retry-After") != ""; retry != test.retry {
			t.Errorf("%s: got Retry-After %q, want one: %v", name, got.header.Get("Retry-After"), test.retry)
		}
	}
}

func TestSubresources(t *testing.T) {
	a, b := newCluster("a", shop+"/web", "/api/v1/namespaces/shop/serviceaccounts/sa"), newCluster("b", shop+"/db")
	w := newWrites(a, b)
	db := w.h.request(t, w.view, http.MethodGet, shop+"/db", "").object(t)
	eviction := fmt.Sprintf(`{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"db"},"deleteOptions":{"preconditions":{"resourceVersion":%q}}}`, db.version())
	got := w.h.request(t, w.view, http.MethodPost, shop+"/db@b/eviction", eviction)
	asked := b.asked()
	if got.code != 201 || !strings.Contains(asked[len(asked)-1].body, `"resourceVersion":"101"`) {
		t.Errorf("eviction: got %d %q, b was asked %+v, want its own version", got.code, got.body, asked)
	}
	token := `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","metadata":{},"spec":{"audiences":["x"]}}`
	if got, sent := w.send(t, http.MethodPost, "/api/v1/namespaces/shop/serviceaccounts/sa@a/token", fleet.JSONType, token); got.code != 201 || strings.Join(sent, "") != "a" {
		t.Errorf("token: got %d %q", got.code, got.body)
	}
	if got := w.h.request(t, w.view, http.MethodGet, shop+"/db/status", ""); got.code != 200 || got.object(t).cluster() != "b" {
		t.Errorf("status: got %d %q", got.code, got.body)
	}
}
