package fleetview

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// TestManyWritesByHabit sends what kubectl sends for delete --all, label --all, scale -l, rollout
// restart and the like: a list, and a write of each object in it by its name. Pods of Deployments
// have names that no other cluster has.
func TestManyWritesByHabit(t *testing.T) {
	const merged = "application/merge-patch+json"
	for name, test := range map[string]struct{ method, subresource, contentType, body string }{
		"delete": {http.MethodDelete, "", fleet.JSONType, `{"propagationPolicy":"Background"}`},
		"patch":  {http.MethodPatch, "", merged, `{"metadata":{"labels":{"a":"b"}}}`},
		"scale":  {http.MethodPatch, "/scale", merged, `{"spec":{"replicas":0}}`},
		"scale with a precondition": {http.MethodPut, "/scale", fleet.JSONType,
			`{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"NAME","annotations":{"` + fleet.AnnotationCluster + `":"CLUSTER"}},"spec":{"replicas":0}}`},
		"drain": {http.MethodPost, "/eviction", fleet.JSONType, `{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"NAME"}}`},
		"debug": {http.MethodPatch, "/ephemeralcontainers", "application/strategic-merge-patch+json", `{"spec":{}}`},
		"token": {http.MethodPost, "/token", fleet.JSONType, `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","metadata":{},"spec":{}}`},
	} {
		w := newWrites(newCluster("a", shop+"/web-1", shop+"/web-2"), newCluster("b", shop+"/web-3"))
		for _, item := range w.h.getList(t, w.view, shop).list.Items {
			of := item.cluster().(string)
			body := strings.NewReplacer("NAME", item.name(), "CLUSTER", of).Replace(test.body)
			got, sent := w.send(t, test.method, shop+"/"+item.name()+test.subresource, test.contentType, body)
			want := item.name() + "@" + of
			if got.code != http.StatusConflict || len(sent) > 0 || !strings.Contains(got.status.Message, "as "+want) || got.header.Get("Retry-After") != "" {
				t.Errorf("%s %s: got %d %q, sent to %q; want 409 with %q", name, item.name(), got.code, got.body, sent, want)
			}
			if got.status.Reason == metav1.StatusReasonConflict {
				t.Errorf("%s %s: the reason is Conflict: kubectl scale repeats that for five minutes", name, item.name())
			}
			got, sent = w.send(t, test.method, shop+"/"+want+test.subresource, test.contentType, body)
			if got.code >= 300 || strings.Join(sent, " ") != of {
				t.Errorf("%s %s: got %d %q, sent to %q; want it done", name, want, got.code, got.body, sent)
			}
		}
		if got, sent := w.send(t, http.MethodDelete, shop+"?labelSelector=a%3Db", fleet.JSONType, `{}`); got.code != http.StatusMethodNotAllowed || len(sent) > 0 {
			t.Errorf("delete of a collection: got %d %q, sent to %q; want 405", got.code, got.body, sent)
		}
	}
}

// TestBareNames sends requests to views with each kind of writes. None gets to a cluster that the
// request does not name, if it may change something there and the view wants it named.
func TestBareNames(t *testing.T) {
	socket := []string{"Connection", "Upgrade", "Upgrade", "websocket"}
	annotated := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"%s","annotations":{"` + fleet.AnnotationCluster + `":"b"}}}`
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"new"}}`
	for name, test := range map[string]struct {
		method, url, body string
		header            []string
		// named and any are what views with these writes do: the cluster that gets the request, or a
		// code and what the message says.
		named, any string
		// none and single are the same of a view without writes, and one of one cluster without
		// writes. Without them they refuse the request.
		none, single string
	}{
		"delete":                   {method: "DELETE", url: shop + "/one", named: "409 as one@a", any: "a"},
		"delete of several":        {method: "DELETE", url: shop + "/web", named: "409 web@a, web@b", any: "409 web@a, web@b"},
		"delete of none":           {method: "DELETE", url: shop + "/none", named: "404 not found", any: "404 not found"},
		"delete of a cluster":      {method: "DELETE", url: shop + "/web@b", named: "b", any: "b"},
		"delete all":               {method: "DELETE", url: shop, named: "405 metadata.cluster=CLUSTER", any: "405 metadata.cluster=CLUSTER"},
		"delete all of a cluster":  {method: "DELETE", url: shop + "?fieldSelector=metadata.cluster%3Db", named: "b", any: "b"},
		"patch":                    {method: "PATCH", url: shop + "/one", body: `{}`, header: []string{"Content-Type", "application/merge-patch+json"}, named: "409 as one@a; the annotation " + fleet.AnnotationCluster + " alone leads to it only when it is created", any: "a"},
		"update, annotated":        {method: "PUT", url: shop + "/web", body: fmt.Sprintf(annotated, "web"), named: "b", any: "b"},
		"create":                   {method: "POST", url: shop, body: pod, named: "405 NAME@CLUSTER", any: "405 NAME@CLUSTER"},
		"create, annotated":        {method: "POST", url: shop, body: fmt.Sprintf(annotated, "new"), named: "b", any: "b"},
		"exec":                     {method: "POST", url: shop + "/one/exec?command=id", named: "409 as one@a", any: "a"},
		"exec by WebSocket":        {method: "GET", url: shop + "/one/exec?command=id", header: socket, named: "409 as one@a", any: "a"},
		"exec of several":          {method: "GET", url: shop + "/web/exec?command=id", header: socket, named: "409 web@a, web@b", any: "409 web@a, web@b"},
		"exec in a cluster":        {method: "GET", url: shop + "/web@b/exec?command=id", header: socket, named: "b", any: "b"},
		"attach":                   {method: "GET", url: shop + "/one/attach", named: "409 as one@a", any: "a"},
		"portforward":              {method: "POST", url: shop + "/one/portforward", named: "409 as one@a", any: "a"},
		"proxy":                    {method: "GET", url: shop + "/one/proxy/x", named: "409 as one@a", any: "a"},
		"proxy of a port":          {method: "GET", url: shop + "/https:one:8443/proxy/x", named: "409 as https:one:8443@a", any: "a"},
		"an upgrade of the object": {method: "GET", url: shop + "/one", header: socket, named: "409 as one@a", any: "a"},
		"log, written":             {method: "POST", url: shop + "/one/log", named: "409 as one@a", any: "a"},
		"a hidden proxy":           {method: "GET", url: shop + "/one%2Fproxy/x", named: "400 slash", any: "400 slash"},
		"no resource, written":     {method: "POST", url: "/metrics", named: "404 ask one cluster", any: "404 ask one cluster"},
		"an empty segment":         {method: "GET", url: shop + "//one", named: "400 empty segment", any: "400 empty segment", none: "400 empty segment", single: "400 empty segment"},
		"no resource":              {method: "GET", url: "/metrics", named: "404 ask one cluster", any: "404 ask one cluster", none: "404 ask one cluster", single: "a"},
		"log":                      {method: "GET", url: shop + "/one/log", named: "a", any: "a", none: "a", single: "a"},
		"log by WebSocket":         {method: "GET", url: shop + "/one/log", header: socket, named: "a", any: "a", none: "a", single: "a"},
		"get":                      {method: "GET", url: shop + "/one", named: "200", any: "200", none: "200", single: "a"},
		"list":                     {method: "GET", url: shop, named: "200", any: "200", none: "200", single: "a"},
		"watch by WebSocket":       {method: "GET", url: shop + "?watch=1&timeoutSeconds=1", header: socket, named: "200", any: "200", none: "200", single: "a"},
	} {
		const refused = "405 only reads (its spec.writes is None)"
		for writes, want := range map[fleet.Writes]string{fleet.WritesNamed: test.named, fleet.WritesAny: test.any, fleet.WritesNone: cmp.Or(test.none, refused)} {
			w := newWrites(newCluster("a", shop+"/web", shop+"/one"), newCluster("b", shop+"/web"))
			w.view.Writes = writes
			w.check(t, fmt.Sprintf("%s, writes %d", name, writes), test.method, test.url, test.body, test.header, want)
		}
		w := newWrites(newCluster("a", shop+"/web", shop+"/one"))
		w.view.Single, w.view.Writes = true, fleet.WritesNone
		w.check(t, name+", of one cluster", test.method, test.url, test.body, test.header, cmp.Or(test.single, refused))
	}
}

// check sends a request. want is the cluster that must get it, or a code and what the answer says.
func (w writes) check(t *testing.T, name, method, url, body string, header []string, want string) {
	t.Helper()
	got := w.h.request(t, w.view, method, url, body, header...)
	sent := got.header.Get("Relayed-To")
	for _, c := range w.clusters {
		for _, asked := range c.asked() {
			if asked.method != http.MethodGet {
				sent += c.name
			}
		}
	}
	code, message, _ := strings.Cut(want, " ")
	refused := len(code) == len("409")
	if refused && (sent != "" || fmt.Sprint(got.code) != code || !strings.Contains(got.status.Message, message)) || !refused && (sent != want || got.code >= 300) {
		t.Errorf("%s: got %d %q, sent to %q; want %q", name, got.code, got.body, sent, want)
	}
}

// TestLoneMember has one member that alone says that it has an object, and so would be written to
// in another's place.
func TestLoneMember(t *testing.T) {
	const widgets = "/apis/example.com/v1/namespaces/shop/widgets"
	type faults [3]func(http.ResponseWriter, *http.Request) bool
	unserved := refusing(http.StatusNotFound) // by no object's name
	for name, test := range map[string]struct {
		// faults are those of b, c and d; a has the object.
		faults faults
		writes fleet.Writes
		want   string
	}{
		"all serve it":                  {writes: fleet.WritesAny, want: "a"},
		"half serve it":                 {faults: faults{unserved, unserved}, writes: fleet.WritesAny, want: "a"},
		"fewer serve it":                {faults: faults{unserved, unserved, unserved}, writes: fleet.WritesAny, want: "409 most clusters do not have widgets at all: name the cluster, as w@a"},
		"one does not answer":           {faults: faults{away}, writes: fleet.WritesAny, want: "503 name the cluster, as w@a"},
		"one refuses":                   {faults: faults{refusing(http.StatusForbidden)}, writes: fleet.WritesAny, want: "503 name the cluster, as w@a"},
		"one does not answer, named":    {faults: faults{away}, want: "409 but cluster b did not answer (no tunnel since 10:02): to change it or to connect to it, name the cluster, as w@a"},
		"one refuses, named":            {faults: faults{refusing(http.StatusForbidden)}, want: "409 but cluster b refused (code 403 is the answer to user ann): to change it"},
		"fewer serve it, named":         {faults: faults{unserved, unserved, unserved}, want: "409 as w@a"},
		"nobody says whether it has it": {faults: faults{away, away, away}, writes: fleet.WritesAny, want: "503 name the cluster, as w@a"},
	} {
		var clusters []*cluster
		for i, of := range []string{"a", "b", "c", "d"} {
			c := newCluster(of)
			if i == 0 {
				c.set(widgets+"/w", nil)
			} else if fault := test.faults[i-1]; fault != nil {
				c.failing(fault)
			}
			clusters = append(clusters, c)
		}
		w := newWrites(clusters...)
		w.view.Writes = test.writes
		w.check(t, name, http.MethodDelete, widgets+"/w", "", nil, test.want)
		if test.want != "a" { // then it is gone
			w.check(t, name+", by its cluster", http.MethodDelete, widgets+"/w@a", "", nil, "a")
		}
	}
}
