package fleetview

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
)

// sent is what a cluster got last that is no GET, as an object.
func (c *cluster) sent(t *testing.T) object {
	t.Helper()
	var last object
	for _, asked := range c.asked() {
		if asked.method != http.MethodGet {
			last = nil
			if err := json.Unmarshal([]byte(asked.body), &last); err != nil {
				t.Fatalf("cluster %s got %q: %v", c.name, asked.body, err)
			}
		}
	}
	return last
}

// TestWritesOfDerivedNames creates what kubectl makes of an object or a name NAME@CLUSTER.
// The cluster must be the right one, and must not see anything of the view's.
func TestWritesOfDerivedNames(t *testing.T) {
	const ours = `"` + fleet.AnnotationCluster + `":"b"`
	for name, test := range map[string]struct {
		path, body string
		code       int
		// want is what the cluster gets, and called what the answer calls it; or what is said.
		want, called string
	}{
		"expose": {
			core + "services", `{"metadata":{"name":"front","labels":{"app":"web"}},"spec":{"selector":{"app":"web",` + ours + `}}}`,
			201, `{"metadata":{"name":"front","labels":{"app":"web"}},"spec":{"selector":{"app":"web"}}}`, "front@b",
		},
		"label": {core + "configmaps", `{"metadata":{"name":"x","labels":{` + ours + `}}}`, 201, `{"metadata":{"name":"x"}}`, "x@b"},
		"create job --from": {
			"/apis/batch/v1/namespaces/shop/jobs", `{"metadata":{"name":"now","ownerReferences":[{"kind":"CronJob","name":"backup@b","uid":"u"}]}}`,
			201, `{"metadata":{"name":"now","ownerReferences":[{"kind":"CronJob","name":"backup","uid":"u"}]}}`, "now@b",
		},
		"autoscale": {
			"/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers", `{"metadata":{"name":"web@b"},"spec":{"scaleTargetRef":{"kind":"Deployment","name":"web@b"}}}`,
			201, `{"metadata":{"name":"web"},"spec":{"scaleTargetRef":{"kind":"Deployment","name":"web"}}}`, "web@b",
		},
		"debug node": {
			shop, `{"metadata":{"name":"node-debugger-node-1@b-x2z4q"},"spec":{"nodeName":"node-1@b","containers":[{"name":"debugger"}]}}`,
			201, `{"metadata":{"name":"node-debugger-node-1-x2z4q"},"spec":{"nodeName":"node-1","containers":[{"name":"debugger"}]}}`, "node-debugger-node-1-x2z4q@b",
		},
		"run": {
			shop, `{"metadata":{"name":"br@b","labels":{"run":"br@b"}},"spec":{"containers":[{"name":"br@b","image":"registry/x@b"}]}}`,
			201, `{"metadata":{"name":"br","labels":{"run":"br"}},"spec":{"containers":[{"name":"br","image":"registry/x@b"}]}}`, "br@b",
		},
		"create deployment": {
			apps + "deployments", `{"metadata":{"name":"br@b","labels":{"app":"br@b"}},"spec":{"selector":{"matchLabels":{"app":"br@b"}},"template":{"metadata":{"labels":{"app":"br@b"}}}}}`,
			201, `{"metadata":{"name":"br","labels":{"app":"br"}},"spec":{"selector":{"matchLabels":{"app":"br"}},"template":{"metadata":{"labels":{"app":"br"}}}}}`, "br@b",
		},
		"create service": {
			core + "services", `{"metadata":{"name":"br@b","labels":{"app":"br@b"}},"spec":{"selector":{"app":"br@b"}}}`,
			201, `{"metadata":{"name":"br","labels":{"app":"br"}},"spec":{"selector":{"app":"br"}}}`, "br@b",
		},
		"in a namespace": {
			strings.Replace(shop, "shop", "shop@b", 1), `{"metadata":{"name":"br","namespace":"shop@b","labels":{"run":"br"}}}`,
			201, `{"metadata":{"name":"br","namespace":"shop","labels":{"run":"br"}}}`, "br",
		},
		"names of two clusters":   {"/apis/batch/v1/namespaces/shop/jobs", `{"metadata":{"name":"now@a","ownerReferences":[{"name":"backup@b"}]}}`, 400, `"a" and "b"`, ""},
		"annotation and name":     {shop, `{"metadata":{"name":"x@a","annotations":{` + ours + `}}}`, 400, `"a" and "b"`, ""},
		"namespace and name":      {strings.Replace(shop, "shop", "shop@b", 1), `{"metadata":{"name":"x@a"}}`, 400, `"b" and "a"`, ""},
		"selector and name":       {core + "services", `{"metadata":{"name":"x@a"},"spec":{"selector":{` + ours + `}}}`, 400, `"a" and "b"`, ""},
		"somebody's own at sign":  {core + "configmaps", `{"metadata":{"name":"x"},"data":{"mail":"ann@b"}}`, 405, "NAME@CLUSTER", ""},
		"cluster that is unknown": {core + "services", `{"metadata":{"name":"x"},"spec":{"selector":{"` + fleet.AnnotationCluster + `":"x"}}}`, 404, `no cluster "x"`, ""},
	} {
		clusters := equal("a", "b")
		h := New(Options{})
		got := h.request(t, testView(clusters...), http.MethodPost, test.path, test.body, "Content-Type", fleet.JSONType)
		sent := map[string]object{"a": clusters[0].sent(t), "b": clusters[1].sent(t)}
		if got.code != test.code || got.code != 201 && !strings.Contains(got.status.Message, test.want) {
			t.Errorf("%s: got %d %q, want %d with %q", name, got.code, got.body, test.code, test.want)
		}
		if got.code != 201 {
			if sent["a"] != nil || sent["b"] != nil {
				t.Errorf("%s: it was sent to a cluster: %v", name, sent)
			}
			continue
		}
		var want object
		if err := json.Unmarshal([]byte(test.want), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, sent["b"]); diff != "" || sent["a"] != nil {
			t.Errorf("%s: a got %v; what b got (-want +got):\n%s", name, sent["a"], diff)
		}
		if o := got.object(t); o.name() != test.called {
			t.Errorf("%s: the answer calls it %q, want %q", name, o.name(), test.called)
		}
	}
}

// TestWritesOfReadObjects puts back, patches and applies what a get of NAME@CLUSTER printed.
// The cluster's object stays as it was, and so does the view's.
func TestWritesOfReadObjects(t *testing.T) {
	const merged, apply = "application/merge-patch+json", "application/apply-patch+yaml"
	for _, qualified := range []bool{false, true} {
		for collection := range workloads {
			clusters := equal("a", "b")
			b := clusters[1]
			view := testView(clusters...)
			view.Qualified = qualified
			h := New(Options{})
			path := collection + "/web@b"
			before := toJSON(t, b.objects[collection+"/web"]["spec"])
			read := h.request(t, view, http.MethodGet, path, "").object(t)
			for _, write := range []struct{ method, path, contentType string }{
				{http.MethodPut, path, fleet.JSONType}, {http.MethodPatch, path, merged}, {http.MethodPatch, path + "?dryRun=All", apply}, {http.MethodPut, collection + "/web", fleet.JSONType},
			} {
				got := h.request(t, view, write.method, write.path, toJSON(t, read), "Content-Type", write.contentType, "Accept", request.ProtobufType+","+fleet.JSONType)
				if got.code != 200 {
					t.Fatalf("qualified %v, %+v: got %d %q", qualified, write, got.code, got.body)
				}
				if after := toJSON(t, b.objects[collection+"/web"]["spec"]); after != before {
					t.Errorf("qualified %v, %+v: the cluster has %s, want %s", qualified, write, after, before)
				}
				o := got.object(t)
				if diff := cmp.Diff(read["spec"], o["spec"]); diff != "" || o.name() != read.name() {
					t.Errorf("qualified %v, %+v: the answer is called %q, want %q; its spec (-read +answer):\n%s", qualified, write, o.name(), read.name(), diff)
				}
				read = o // with the new version
			}
			other := h.request(t, view, http.MethodPut, collection+"/web@a", toJSON(t, read), "Content-Type", fleet.JSONType)
			if other.code != 400 || !strings.Contains(other.status.Message, `"a" and "b"`) {
				t.Errorf("what b has, for a: got %d %q, want 400", other.code, other.body)
			}
		}
	}
}

// TestVersionOfUnchangedObjects wants the version that a write came with in its answer, if the
// member's is still the same: kubectl diff compares what it read with the answer to a dry run.
func TestVersionOfUnchangedObjects(t *testing.T) {
	clusters := equal("a", "b")
	h := New(Options{})
	view := testView(clusters...)
	read := h.request(t, view, http.MethodGet, shop+"/web-0@b", "").object(t)
	got := h.request(t, view, http.MethodPatch, shop+"/web-0@b?dryRun=All", `{"metadata":{"resourceVersion":"`+read.version()+`"}}`, "Content-Type", "application/merge-patch+json")
	if got.code != 200 || got.object(t).version() != read.version() {
		t.Errorf("got %d %q, want version %s", got.code, got.body, read.version())
	}
	if diff := cmp.Diff(read, got.object(t)); diff != "" {
		t.Errorf("kubectl diff would print (-live +merged):\n%s", diff)
	}
}

// TestNamespacesLeadToTheCluster reads and writes in NAMESPACE@CLUSTER. Objects have the names
// that they have there, so that kubectl finds them in what they refer to, and the namespace
// leads to the cluster.
func TestNamespacesLeadToTheCluster(t *testing.T) {
	for _, qualified := range []bool{false, true} {
		clusters := equal("a", "b")
		for _, c := range clusters {
			c.set("/api/v1/namespaces/shop", nil)
			c.set(core+"persistentvolumeclaims/data", nil)
		}
		view := testView(clusters...)
		view.Qualified = qualified
		h := New(Options{})
		in := strings.Replace(core, "shop", "shop@b", 1)
		pvc := h.request(t, view, http.MethodGet, in+"persistentvolumeclaims/data", "").object(t)
		if pvc.name() != "data" || pvc.meta()["namespace"] != "shop@b" || pvc.cluster() != "b" {
			t.Errorf("qualified %v: got %v, want data in shop@b", qualified, pvc)
		}
		for _, accept := range []string{fleet.JSONType, "application/json;as=Table;v=v1;g=meta.k8s.io"} {
			list := h.getList(t, view, in+"pods?labelSelector=app%3Dweb", "Accept", accept)
			if got := list.named(); list.code != 200 || !slices.Equal(got, []string{"web-0", "web-1"}) || !strings.Contains(list.body, `"namespace":"shop@b"`) {
				t.Errorf("qualified %v: pods of shop@b: got %q, want two in shop@b", qualified, list.body)
			}
		}
		for name, test := range map[string]struct {
			method, url string
			code        int
			to          string
		}{
			"exec":               {http.MethodPost, in + "pods/web-0/exec", 200, "b"},
			"proxy":              {http.MethodGet, in + "services/https:web:8443/proxy/", 200, "b"},
			"proxy by name":      {http.MethodGet, core + "services/https:web@b:8443/proxy/", 200, "b"},
			"both":               {http.MethodPost, in + "pods/web-0@b/exec", 200, "b"},
			"two clusters":       {http.MethodPost, in + "pods/web-0@a/exec", 404, ""},
			"of a namespace":     {http.MethodGet, in + "resourcequotas", 404, ""}, // the clusters of this test have none
			"describe namespace": {http.MethodGet, "/api/v1/namespaces/shop@b", 200, ""},
			"events":             {http.MethodGet, in + "events?fieldSelector=" + url.QueryEscape("involvedObject.namespace=shop@b,involvedObject.name=web"), 200, ""},
		} {
			got := h.request(t, view, test.method, test.url, "")
			if got.code != test.code || got.header.Get("Relayed-To") != test.to {
				t.Errorf("qualified %v, %s: got %d %q by %q, want %d by %q", qualified, name, got.code, got.body, got.header.Get("Relayed-To"), test.code, test.to)
			}
		}
		for _, asked := range append(clusters[0].asked(), clusters[1].asked()...) {
			if strings.Contains(asked.url, "@") || strings.Contains(asked.url, "%40") {
				t.Errorf("a cluster was asked for %q", asked.url)
			}
		}
	}
}

// TestOwnersLeadToTheCluster wants owners' names qualified where the objects' are: kubectl
// drain asks for the DaemonSet of a pod.
func TestOwnersLeadToTheCluster(t *testing.T) {
	view := testView(equal("a", "b")...)
	h := New(Options{})
	ownerOf := func(o object) string {
		return o.meta()["ownerReferences"].([]any)[0].(map[string]any)["name"].(string)
	}
	for _, test := range []struct {
		qualified bool
		url, want string
	}{
		{false, shop + "?fieldSelector=spec.nodeName%3Dnode-1@b", "web@b"}, {false, shop + "?labelSelector=app", "web"}, {true, shop + "?labelSelector=app", "web@a"},
	} {
		view.Qualified = test.qualified
		list := h.getList(t, view, test.url)
		if got := ownerOf(list.list.Items[0]); got != test.want {
			t.Errorf("qualified %v, %s: the owner is %q, want %q", test.qualified, test.url, got, test.want)
		}
		rows := h.getList(t, view, test.url, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		if got := ownerOf(rows.list.Rows[0].Object); got != test.want {
			t.Errorf("qualified %v, %s in a Table: the owner is %q, want %q", test.qualified, test.url, got, test.want)
		}
	}
	view.Qualified = false
	if got := ownerOf(h.request(t, view, http.MethodGet, shop+"/web-0@b", "").object(t)); got != "web@b" {
		t.Errorf("get: the owner is %q, want web@b", got)
	}
}

// TestAppliedIsCalledAsTheObject wants kubectl apply to find what it was given the last time.
func TestAppliedIsCalledAsTheObject(t *testing.T) {
	const applied = "kubectl.kubernetes.io/last-applied-configuration"
	maps := core + "configmaps"
	for name, test := range map[string]struct{ path, called, namespace string }{
		"a name":      {maps + "/x@b", "x@b", "shop"},
		"a namespace": {strings.Replace(maps, "shop", "shop@b", 1) + "/x", "x", "shop@b"},
	} {
		clusters := equal("a", "b")
		h := New(Options{})
		view := testView(clusters...)
		given := toJSON(t, object{"metadata": map[string]any{"name": test.called, "namespace": test.namespace}}) + "\n"
		body := object{"metadata": map[string]any{"name": test.called, "namespace": test.namespace, "annotations": map[string]any{applied: given}}}
		if got := h.request(t, view, http.MethodPost, test.path[:strings.LastIndexByte(test.path, '/')], toJSON(t, body), "Content-Type", fleet.JSONType); got.code != 201 {
			t.Fatalf("%s: got %d %q", name, got.code, got.body)
		}
		annotations := func(o object) map[string]any { return o.meta()["annotations"].(map[string]any) }
		if there := annotations(clusters[1].objects[maps+"/x"])[applied]; strings.Contains(there.(string), "@") {
			t.Errorf("%s: the cluster has %q, want nothing of the view", name, there)
		}
		if got := annotations(h.request(t, view, http.MethodGet, test.path, "").object(t))[applied]; got != given {
			t.Errorf("%s: the view has %q, want %q", name, got, given)
		}
	}
}
