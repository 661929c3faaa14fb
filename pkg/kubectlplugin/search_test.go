package kubectlplugin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterproxy "open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

// searchHub answers searches with hits, a page at a time.
type searchHub struct {
	t     *testing.T
	hits  []indexapi.Hit
	basis indexapi.Basis
	// refused is the answer instead, if it has a code.
	refused metav1.Status
	// asked are the queries so far.
	asked *[]string
}

func (h searchHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/apis/clusterproxy.open-cluster-management.io/v1alpha1/fleetviews/all/search" {
		http.NotFound(w, r)
		return
	}
	*h.asked = append(*h.asked, r.URL.RawQuery)
	w.Header().Set("Content-Type", "application/json")
	if h.refused.Code != 0 {
		w.WriteHeader(int(h.refused.Code))
		_ = json.NewEncoder(w).Encode(h.refused)
		return
	}
	values := r.URL.Query()
	if values.Has("countBy") {
		_ = json.NewEncoder(w).Encode(counted{metav1.TypeMeta{APIVersion: clusterproxy.GroupVersion.String(), Kind: "FleetCount"}, indexapi.CountAnswer{Basis: h.basis, Total: 12, Left: 1,
			Counts: []indexapi.Count{{Values: []string{"edge-7", "Running"}, N: 8}, {Values: []string{"edge-8", ""}, N: 3}}}})
		return
	}
	from, _ := strconv.Atoi(values.Get("continue"))
	limit, err := strconv.Atoi(values.Get("limit"))
	if err != nil {
		h.t.Errorf("%s has no limit", r.URL.RawQuery)
	}
	answer := found{metav1.TypeMeta{APIVersion: clusterproxy.GroupVersion.String(), Kind: "FleetSearch"}, indexapi.SearchAnswer{Basis: h.basis, Hits: h.hits[from:min(from+limit, len(h.hits))]}}
	if from+limit < len(h.hits) {
		answer.Continue = strconv.Itoa(from + limit)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// hit is a pod of a cluster.
func hit(cluster, name string) indexapi.Hit {
	return indexapi.Hit{Cluster: cluster, APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: "shop", Name: name, Status: "Running",
		Created: time.Now().Add(-50 * time.Hour), Node: "node-1", Images: []string{"nginx:1.25"}}
}

func TestSearch(t *testing.T) {
	web := hit("edge-8", "web")
	web.APIVersion, web.Kind, web.Resource, web.Images = "apps/v1", "Deployment", "deployments", nil
	node := indexapi.Hit{Cluster: "edge-9", APIVersion: "v1", Kind: "Node", Resource: "nodes", Name: "n\x1b[2J", Status: "Ready"}
	three := []indexapi.Hit{hit("edge-7", "web-1"), web, node}
	var many []indexapi.Hit
	for i := range 1200 {
		many = append(many, hit("edge-7", fmt.Sprint("web-", i)))
	}
	heard := time.Date(2026, 11, 29, 10, 2, 0, 0, time.UTC)
	basis := indexapi.Basis{
		Away: map[string]time.Time{"edge-7": heard}, Incomplete: map[string]string{"edge-8": "it has more than 100000 objects"},
		Undecided: map[string]string{"edge-9": "no answer"}, Unindexed: map[string]string{"old": "its agent is too old"}, Denied: 3, DeniedIn: []string{"edge-1", "edge-2"}, Partly: 1, PartlyIn: []string{"edge-4"}, More: 2, Unknown: []string{"nope"},
	}
	for name, test := range map[string]struct {
		hub    searchHub
		args   []string
		out    string
		errOut string
		err    string
		// asked are the queries, and lines how many there are on standard output, if that is not 0.
		asked []string
		lines int
	}{
		"a table": {hub: searchHub{hits: three}, args: []string{"kind:pod", "web"}, asked: []string{"limit=500&q=kind%3Apod+web"},
			out: "CLUSTER   NAMESPACE   KIND         NAME         STATUS    AGE\nedge-7    shop        Pod          web-1        Running   2d2h\n" +
				"edge-8    shop        Deployment   web          Running   2d2h\nedge-9    <none>      Node         n\\u001b[2J   Ready     <unknown>\n"},
		"wide": {hub: searchHub{hits: three[:1]}, args: []string{"web", "-o", "wide"},
			out: "CLUSTER   NAMESPACE   KIND   NAME    STATUS    AGE    NODE     IMAGES\nedge-7    shop        Pod    web-1   Running   2d2h   node-1   nginx:1.25\n"},
		"names":     {hub: searchHub{hits: three}, args: []string{"web", "-o", "name"}, out: "pods/web-1@edge-7 -n shop\ndeployments.apps/web@edge-8 -n shop\nnodes/n\\u001b[2J@edge-9\n"},
		"jsonpath":  {hub: searchHub{hits: three[:1]}, args: []string{"web", "-o", "jsonpath={.kind} {.hits[0].name}"}, out: "FleetSearch web-1"},
		"none":      {hub: searchHub{}, args: []string{"log4j"}, errOut: "No resources found in the fleet index\n"},
		"a limit":   {hub: searchHub{hits: many}, args: []string{"web", "--limit=700"}, errOut: "There are more than 700; --limit=0 shows all\n", asked: []string{"limit=500&q=web", "continue=500&limit=200&q=web"}, lines: 701},
		"all":       {hub: searchHub{hits: many}, args: []string{"--limit=0"}, asked: []string{"limit=500&q=", "continue=500&limit=500&q=", "continue=1000&limit=500&q="}, lines: 1201},
		"the basis": {hub: searchHub{hits: three[:1], basis: basis}, args: []string{"web"}, errOut: "Warning: cluster edge-7 was last heard at 2026-11-29T10:02:00Z; its objects are as of then\n" + "Warning: cluster edge-8 is incomplete in the fleet index (it has more than 100000 objects); some of its objects are not found\n" + "Warning: cluster edge-9 could not decide what you may see (no answer); objects of it are not shown\n" + "Warning: cluster old is not in the fleet index (its agent is too old); its objects are not found\n" + "Warning: there is no cluster nope in this view that you may search: look at the name, or ask for the right to it\n" + "Warning: in 3 clusters (edge-1, edge-2 and 1 more) you may not list all of these kinds; such objects are not shown\n" + "Warning: in 1 cluster (edge-4) you may list some namespaces at most; objects in them may be missing: name the namespaces, as in namespace:a,b, and few clusters\n" + "Warning: 2 clusters more: the answer says so of their objects too\n"},
		"counts": {hub: searchHub{}, args: []string{"kind:pod", "--count-by=cluster,status"}, asked: []string{"countBy=cluster%2Cstatus&q=kind%3Apod"},
			out: "CLUSTER   STATUS    COUNT\nedge-7    Running   8\nedge-8    <none>    3\n", errOut: "1 more are in 1 count not shown: search for less, or count by less\n"},
		"counts as names": {hub: searchHub{}, args: []string{"--count-by=cluster", "-o", "name"}, err: "--output=name is for objects"},
		"a namespace":     {hub: searchHub{}, args: []string{"web", "-n", "shop"}, asked: []string{"limit=500&q=web+namespace%3Ashop"}, errOut: "No resources found in the fleet index\n"},
		"counts in one":   {hub: searchHub{}, args: []string{"--namespace=shop", "--count-by=cluster,status"}, asked: []string{"countBy=cluster%2Cstatus&q=namespace%3Ashop"}, errOut: "1 more are in 1 count not shown: search for less, or count by less\n"},
		"no namespace":    {args: []string{"web", "-n", "team-*"}, err: `--namespace is "team-*"`},
		"no key":          {args: []string{"king:pod"}, err: `"king" is no key of a search`},
		"no view":         {args: []string{"--view=.."}, err: `--view is "..", which cannot be the name of a view`},
		"no limit":        {args: []string{"--limit=-1"}, err: "--limit is -1"},
		"no index": {hub: searchHub{refused: clitest.StatusOf(404, metav1.StatusReasonNotFound, "", "this hub has no fleet index")}, args: []string{"web"},
			err: `searching in view "all": this hub has no fleet index`},
		"no right": {hub: searchHub{refused: clitest.StatusOf(403, metav1.StatusReasonForbidden, clusterproxy.GroupVersion.Group, `User "ann" cannot get`)}, args: []string{"web"},
			err: "--clusterrole=cluster-proxy-user"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			test.hub.t, test.hub.asked = t, &asked
			server := httptest.NewTLSServer(test.hub)
			defer server.Close()
			out, errOut, err := run(t, clitest.WriteKubeconfig(t, server), append([]string{"search"}, test.args...)...)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil || errOut != test.errOut {
				t.Errorf("%v, and %q on standard error; want %q", err, errOut, test.errOut)
			}
			if diff := cmp.Diff(test.out, out); diff != "" && test.out != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.asked, asked); diff != "" && test.asked != nil {
				t.Errorf("queries (-want +got):\n%s", diff)
			}
			if lines := strings.Count(out, "\n"); test.lines > 0 && lines != test.lines {
				t.Errorf("%d lines, want %d", lines, test.lines)
			}
		})
	}
}
