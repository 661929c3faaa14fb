package fleetview

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
)

const (
	apps = "/apis/apps/v1/namespaces/shop/"
	core = "/api/v1/namespaces/shop/"
)

// workloads are the objects by whose selectors kubectl finds pods: all of them are called web.
var workloads = map[string]string{
	apps + "deployments": "matchLabels", apps + "replicasets": "matchLabels", apps + "statefulsets": "matchLabels", apps + "daemonsets": "matchLabels",
	"/apis/batch/v1/namespaces/shop/jobs": "matchLabels", core + "services": "", core + "replicationcontrollers": "",
}

// equal makes clusters in which everything is called the same, as it is in most fleets.
func equal(names ...string) []*cluster {
	labels := map[string]any{"app": "web"}
	var clusters []*cluster
	for _, name := range names {
		c := newCluster(name, "/api/v1/nodes/node-1", shop+"/other", "/apis/batch/v1/namespaces/shop/cronjobs/backup")
		for collection, within := range workloads {
			selector := map[string]any{"app": "web"}
			if within != "" {
				selector = map[string]any{within: selector}
			}
			c.set(collection+"/web", object{"spec": map[string]any{"selector": selector}})
		}
		for _, pod := range []string{"web-0", "web-1"} {
			owner := map[string]any{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "uid": "uid-of-ds-" + name, "controller": true}
			c.set(shop+"/"+pod, object{"metadata": map[string]any{"labels": labels, "ownerReferences": []any{owner}}, "spec": map[string]any{"nodeName": "node-1"}})
		}
		clusters = append(clusters, c)
	}
	return clusters
}

// named are the names that a list's objects have, in any form.
func (r response) named() []string {
	names := []string{}
	for _, item := range r.list.Items {
		names = append(names, item.name())
	}
	for _, row := range r.list.Rows {
		names = append(names, row.Object.name())
	}
	return names
}

// selectorOf is what kubectl lists by: LabelSelectorAsSelector, or SelectorFromSet.
func selectorOf(t *testing.T, o object, within string) string {
	t.Helper()
	selector := o["spec"].(map[string]any)["selector"]
	if within == "" {
		selector = map[string]any{"matchLabels": selector}
	}
	var typed metav1.LabelSelector
	if err := json.Unmarshal([]byte(toJSON(t, selector)), &typed); err != nil {
		t.Fatal(err)
	}
	parsed, err := metav1.LabelSelectorAsSelector(&typed)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.String()
}

// TestSelectorsLeadToTheCluster does what kubectl's logs, exec, attach and port-forward do of
// a workload or a Service: they read it, list pods by its selector, and ask for one of them.
func TestSelectorsLeadToTheCluster(t *testing.T) {
	for _, form := range []string{fleet.JSONType, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"} {
		for _, qualified := range []bool{false, true} {
			view := testView(equal("a", "b", "c")...)
			view.Qualified = qualified
			h := New(Options{})
			for collection, within := range workloads {
				got := h.request(t, view, http.MethodGet, collection+"/web@b", "", "Accept", request.ProtobufType+",application/json")
				if got.code != 200 {
					t.Fatalf("%s: got %d %q", collection, got.code, got.body)
				}
				selector := selectorOf(t, got.object(t), within)
				list := h.getList(t, view, shop+"?labelSelector="+url.QueryEscape(selector), "Accept", form)
				if want := []string{"web-0@b", "web-1@b"}; list.code != 200 || !slices.Equal(list.named(), want) {
					t.Fatalf("qualified %v, %s: pods by %q: got %d %q, want %q", qualified, collection, selector, list.code, list.body, want)
				}
				first := list.named()[0]
				if got := h.request(t, view, http.MethodPost, shop+"/"+first+"/exec?command=x", ""); got.header.Get("Relayed-To") != "b" {
					t.Errorf("qualified %v, %s: exec ran in %q, want b", qualified, collection, got.header.Get("Relayed-To"))
				}
			}
		}
	}
}

// TestFieldsLeadToTheCluster lists by what kubectl puts into field selectors.
func TestFieldsLeadToTheCluster(t *testing.T) {
	clusters := equal("a", "b")
	for _, c := range clusters {
		for i, uid := range []string{"node-1", "uid-of-node"} {
			c.set(fmt.Sprintf("/api/v1/namespaces/default/events/node.%d", i), object{"involvedObject": map[string]any{"kind": "Node", "name": "node-1", "namespace": "", "uid": uid}})
		}
	}
	h := New(Options{})
	view := testView(clusters...)
	for name, test := range map[string]struct {
		path, selector string
		code           int
		want           []string
		says           string
	}{
		"drain":                       {"/api/v1/pods", "spec.nodeName=node-1@b", 200, []string{"web-0@b", "web-1@b"}, ""},
		"describe node":               {"/api/v1/pods", "spec.nodeName=node-1@b,status.phase!=Failed", 200, []string{"web-0@b", "web-1@b"}, ""},
		"events of a node by uid":     {"/api/v1/namespaces/default/events", "involvedObject.name=node-1@b,involvedObject.namespace=,involvedObject.kind=Node,involvedObject.uid=node-1@b", 200, []string{"node.0@b"}, ""},
		"wait":                        {shop, "metadata.name=web-0@a", 200, []string{"web-0@a"}, ""},
		"by cluster":                  {shop, "metadata.cluster=b,metadata.name!=other", 200, []string{"web-0@b", "web-1@b"}, ""},
		"not by cluster":              {shop, "metadata.cluster!=b,metadata.name=web-0", 200, []string{"web-0"}, ""},
		"another field":               {shop, "status.phase=x@b", 400, nil, "metadata.cluster=b"},
		"another field and a cluster": {shop, "status.phase=x@b,metadata.cluster=b", 200, []string{}, ""},
		"all but one":                 {shop, "metadata.name!=web-0@b", 400, nil, "metadata.cluster=b,metadata.name!=web-0"},
		"two clusters":                {shop, "metadata.name=web-0@b,metadata.cluster=a", 404, nil, "no cluster that all selectors of the request choose"},
		"no cluster of the view":      {shop, "metadata.name=web-0@x", 200, []string{}, ""},
	} {
		got := h.getList(t, view, test.path+"?fieldSelector="+url.QueryEscape(test.selector))
		if got.code != test.code || test.code == 200 && !slices.Equal(got.named(), test.want) || !strings.Contains(got.status.Message, test.says) {
			t.Errorf("%s: got %d %q, want %d with %q %q", name, got.code, got.body, test.code, test.want, test.says)
		}
	}
	if got := h.getList(t, view, shop+"?fieldSelector="+url.QueryEscape(fields.OneTermEqualSelector("spec.nodeName", "node-1").String())); !slices.Equal(got.named(), []string{"web-0", "web-1", "web-0", "web-1"}) {
		t.Errorf("a node's name without a cluster: got %q, want the pods of both", got.body)
	}
}

// TestLabelsChooseClusters takes the view's label off selectors, which members do not know.
func TestLabelsChooseClusters(t *testing.T) {
	clusters := equal("a", "b", "c")
	h := New(Options{})
	view := testView(clusters...)
	const key = fleet.AnnotationCluster
	for selector, test := range map[string]struct {
		code int
		want []string // or what is said
	}{
		key + "=b,app=web":            {200, []string{"web-0@b", "web-1@b"}},
		"app=web," + key + " in (b)":  {200, []string{"web-0@b", "web-1@b"}},
		"app," + key + "==b":          {200, []string{"web-0@b", "web-1@b"}},
		"app," + key + " notin (b,a)": {200, []string{"web-0", "web-1"}},
		"app," + key + "!=b":          {200, []string{"web-0", "web-1", "web-0", "web-1"}},
		"app," + key + " in (a,c)":    {200, []string{"web-0", "web-1", "web-0", "web-1"}},
		"app," + key:                  {200, []string{"web-0", "web-1", "web-0", "web-1", "web-0", "web-1"}},
		"app,!" + key:                 {400, []string{"without " + key}},
		key + ">5":                    {400, []string{"without " + key}},
		key + "=x":                    {404, []string{`no cluster "x" that you may reach; it has: a, b, c`}},
		key + " in (x, y)":            {404, []string{`no cluster "x" or "y" that you may reach; it has: a, b, c`}},
		"app=web@b":                   {200, []string{"web-0@b", "web-1@b"}},
		"app in (web@b)":              {200, []string{"web-0@b", "web-1@b"}},
		"app in (web@b,x)":            {400, []string{key + "=b"}},
		"app!=web@b":                  {400, []string{key + "=b"}},
		"app=web@b," + key + "=a":     {404, []string{"no cluster"}},
		"app=" + strings.Repeat("x", 60) + "@b," + key: {200, nil},
		"app=web@nowhere":                                  {400, []string{"nowhere"}},
		"app=web@b,other in (web@b, x@b)":                  {200, nil},
		"app=web,kubernetes.io/service-name=web@b,x notin": {400, nil},
	} {
		got := h.getList(t, view, shop+"?labelSelector="+url.QueryEscape(selector))
		switch {
		case got.code != test.code:
			t.Errorf("%q: got %d %q, want %d", selector, got.code, got.body, test.code)
		case got.code == 200 && test.want != nil && !slices.Equal(got.named(), test.want):
			t.Errorf("%q: got %q, want %q", selector, got.named(), test.want)
		case got.code != 200 && len(test.want) > 0 && !strings.Contains(got.status.Message, test.want[0]):
			t.Errorf("%q: got %q, want it to say %q", selector, got.status.Message, test.want[0])
		}
	}
	for _, c := range clusters {
		for _, asked := range c.asked() {
			if decoded, _ := url.QueryUnescape(asked.url); strings.Contains(decoded, key) {
				t.Errorf("%s was asked for %q, with the view's label", c.name, decoded)
			}
		}
	}
}

// TestNamesThatMislead has a member call its objects as those of another are called: what a
// client does with them must not be done there.
func TestNamesThatMislead(t *testing.T) {
	evil, victim := newCluster("a", shop+"/db@b", "/apis/rbac.authorization.k8s.io/v1/clusterroles/ann@example.com"), newCluster("b", shop+"/db")
	h := New(Options{})
	view := testView(evil, victim)
	for _, accept := range []string{fleet.JSONType, "application/json;as=Table;v=v1;g=meta.k8s.io"} {
		list := h.getList(t, view, shop, "Accept", accept)
		if want := []string{"db@b@a", "db"}; !slices.Equal(list.named(), want) {
			t.Errorf("as %s: got %q, want %q", accept, list.named(), want)
		}
		if len(list.list.Rows) > 0 && list.list.Rows[0].Cells[1] != "db@b@a" {
			t.Errorf("the row is %v, want db@b@a", list.list.Rows[0].Cells)
		}
	}
	if got := h.request(t, view, http.MethodPost, shop+"/db@b@a/exec", ""); got.header.Get("Relayed-To") != "a" || !strings.Contains(got.body, "db@b/exec") {
		t.Errorf("exec: got %q by %q, want the pod of a", got.body, got.header.Get("Relayed-To"))
	}
	if got := h.getList(t, view, "/apis/rbac.authorization.k8s.io/v1/clusterroles"); !slices.Equal(got.named(), []string{"ann@example.com"}) {
		t.Errorf("a name that leads nowhere: got %q, want it as it is", got.named())
	}
	evil.set("/api/v1/namespaces/shop@b/pods/db", nil)
	if got := h.getList(t, view, "/api/v1/pods"); !slices.Equal(got.names(), []string{"db@b"}) || len(got.lacks()) != 1 {
		t.Errorf("a namespace that leads to another cluster: got %q with %q, want the objects of b and a warning", got.names(), got.warnings)
	}
}
