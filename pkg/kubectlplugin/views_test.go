package kubectlplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterproxy "open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

// viewsHub answers as a hub whose user may reach some clusters and see some views.
type viewsHub struct {
	clusters []string
	views    []v1alpha1.FleetView
	// noList forbids to list views; get is allowed for those that are there.
	noList bool
	// noCRD has the hub know no views at all.
	noCRD bool
	// index is what the fleet index counts; nil if there is none.
	index *indexapi.CountAnswer
}

func (h viewsHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, named := strings.CutPrefix(r.URL.Path, cli.ViewsPath+"/")
	if !named {
		name = ""
	}
	i := slices.IndexFunc(h.views, func(view v1alpha1.FleetView) bool { return named && view.Name == name })
	status := func(code int, reason metav1.StatusReason, message string) metav1.Status {
		return metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: int32(code), Reason: reason, Message: message, Details: &metav1.StatusDetails{Name: name},
		}
	}
	code, object := http.StatusOK, any(nil)
	switch {
	case r.URL.Path == cli.GroupPath:
		var list clusterproxy.ClusterList
		for _, cluster := range h.clusters {
			list.Items = append(list.Items, clusterproxy.Cluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}})
		}
		object = list
	case strings.HasSuffix(r.URL.Path, "/search") && r.URL.RawQuery == "countBy=cluster" && h.index != nil:
		object = counted{metav1.TypeMeta{APIVersion: clusterproxy.GroupVersion.String(), Kind: "FleetCount"}, *h.index}
	case strings.HasSuffix(r.URL.Path, "/search"):
		code, object = 404, status(404, metav1.StatusReasonNotFound, "this hub has no fleet index")
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		object = map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "status": map[string]bool{"allowed": true}}
	case h.noCRD:
		http.Error(w, "404 page not found", http.StatusNotFound) // as kube-apiserver does
		return
	case i >= 0:
		object = h.views[i]
	case h.noList:
		code, object = 403, status(403, metav1.StatusReasonForbidden, fmt.Sprintf("fleetviews %q is forbidden: not for ann", name))
	case named:
		code, object = 404, status(404, metav1.StatusReasonNotFound, fmt.Sprintf("fleetviews %q not found", name))
	default:
		object = v1alpha1.FleetViewList{Items: h.views}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

// start returns a kubeconfig with the context hub.
func (h viewsHub) start(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	return clitest.WriteKubeconfig(t, server)
}

func TestViews(t *testing.T) {
	since := metav1.NewTime(time.Now().Add(-50 * time.Hour))
	away := v1alpha1.UnreachableCluster{Name: "edge-7", Since: &since, Reason: "NoTunnel"}
	quiet := v1alpha1.UnreachableCluster{Name: "edge-9", Reason: "AgentNotReported"}
	many := clitest.NewView("many", 1, away)
	many.Status.UnreachableCount = 101
	stale := clitest.NewView("new", 4)
	stale.Generation = 3
	broken := clitest.NewView("broken", 0)
	broken.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionTypeFleetViewValid, Status: metav1.ConditionFalse, Message: "no such set"}}
	indexed := clitest.NewView("all", 3)
	indexed.Spec.Reads = v1alpha1.ReadsIndexed
	behind := indexapi.Basis{Away: map[string]time.Time{"edge-7": since.Time, "edge-8": time.Now()}, Undecided: map[string]string{"edge-9": "no answer"}}
	manyAway := indexapi.Basis{Away: map[string]time.Time{}, More: 80}
	for i := range indexapi.MaxNamed {
		manyAway.Away[fmt.Sprint("edge-", i)] = since.Time
	}
	const ofIndexed = "NAME   CLUSTERS   REACHABLE   NAMES   READS\nall    3          3           Plain   Indexed\n"
	for name, test := range map[string]struct {
		hub     viewsHub
		args    []string
		out     string
		errOut  string
		err     string
		notGood bool
	}{
		"all good": {hub: viewsHub{views: []v1alpha1.FleetView{clitest.NewView("all", 3), clitest.NewView("prod", 2)}},
			out: "NAME   CLUSTERS   REACHABLE   NAMES   READS\nall    3          3           Plain   Live\nprod   2          2           Plain   Live\n"},
		"indexed": {hub: viewsHub{views: []v1alpha1.FleetView{indexed, clitest.NewView("live", 3)}, index: &indexapi.CountAnswer{Total: 50_213}},
			out: "NAME   CLUSTERS   REACHABLE   NAMES   READS\nall    3          3           Plain   Indexed\nlive   3          3           Plain   Live\n\nINDEXED VIEW   OBJECTS   AWAY   OLDEST\nall            50213     0      <none>\n"},
		"indexed, some away": {hub: viewsHub{views: []v1alpha1.FleetView{indexed}, index: &indexapi.CountAnswer{Total: 7, Basis: behind}},
			out:    ofIndexed + "\nINDEXED VIEW   OBJECTS   AWAY   OLDEST\nall            7         2      2d2h\n",
			errOut: "view all has 1 cluster of which the index lacks objects, or does not know what you may see: kubectl clusterproxy search --view=all --count-by=cluster\n"},
		"indexed, many away": {hub: viewsHub{views: []v1alpha1.FleetView{indexed}, index: &indexapi.CountAnswer{Total: 7, Basis: manyAway}},
			out: ofIndexed + "\nINDEXED VIEW   OBJECTS   AWAY   OLDEST\nall            7         20+    2d2h+\n"},
		"indexed, and no index": {hub: viewsHub{views: []v1alpha1.FleetView{indexed}},
			out: ofIndexed + "\nINDEXED VIEW   OBJECTS     AWAY        OLDEST\nall            <unknown>   <unknown>   <unknown>\n", errOut: `searching in view "all": this hub has no fleet index`},
		"some away": {hub: viewsHub{views: []v1alpha1.FleetView{clitest.NewView("all", 3, away, quiet), clitest.NewView("edge", 0, away)}}, notGood: true,
			out: "NAME   CLUSTERS   REACHABLE   NAMES   READS\nall    5          3           Plain   Live\nedge   1          0           Plain   Live\n\n" +
				"NOT ANSWERING   SINCE       REASON             VIEWS\nedge-7          2d2h        NoTunnel           all,edge\n" +
				"edge-9          <unknown>   AgentNotReported   all\n"},
		"wide": {hub: viewsHub{views: []v1alpha1.FleetView{clitest.NewView("all", 3)}}, args: []string{"-o", "wide"},
			out: "NAME   CLUSTERS   REACHABLE   NAMES   READS   WHEN UNREACHABLE   CLUSTER TIMEOUT   INFORMER TIMEOUT   AGE\n" +
				"all    3          3           Plain   Live    Warn               5s                45s                4d4h\n"},
		"names": {hub: viewsHub{views: []v1alpha1.FleetView{clitest.NewView("all", 3), clitest.NewView("prod", 2)}}, args: []string{"-o", "name"},
			out: "fleetview.proxy.open-cluster-management.io/all\nfleetview.proxy.open-cluster-management.io/prod\n"},
		"more than are listed": {hub: viewsHub{views: []v1alpha1.FleetView{many}}, notGood: true, errOut: "view many has 100 more clusters without an answer"},
		"no status yet": {hub: viewsHub{views: []v1alpha1.FleetView{stale}},
			out: "NAME   CLUSTERS    REACHABLE   NAMES   READS\nnew    <unknown>   <unknown>   Plain   Live\n"},
		"not valid": {hub: viewsHub{views: []v1alpha1.FleetView{broken}}, notGood: true, errOut: "view broken is not valid: no such set\n"},
		"one": {hub: viewsHub{views: []v1alpha1.FleetView{clitest.NewView("all", 3)}, noList: true}, args: []string{"all", "-o", "name"},
			out: "fleetview.proxy.open-cluster-management.io/all\n"},
		"none":           {errOut: "There is no view that you may see.\n"},
		"may not list":   {hub: viewsHub{noList: true}, err: "not for ann; name one that you may get, for example: kubectl clusterproxy views all"},
		"may not get":    {hub: viewsHub{noList: true}, args: []string{"all"}, err: `getting view "all": fleetviews "all" is forbidden: not for ann`},
		"no CRD":         {hub: viewsHub{noCRD: true}, err: "the CRD fleetviews.proxy.open-cluster-management.io is not installed"},
		"no CRD, named":  {hub: viewsHub{noCRD: true}, args: []string{"all"}, err: "is not installed"},
		"unknown view":   {args: []string{"nope"}, err: `no view "nope"; see: kubectl clusterproxy views`},
		"not a name":     {args: []string{".."}, err: `".." cannot be the name of a view`},
		"unknown format": {args: []string{"-o", "xml"}, err: `--output is "xml": it must be name, wide, json, yaml or jsonpath=TEMPLATE`},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := run(t, test.hub.start(t), append([]string{"views"}, test.args...)...)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want one with %q", err, test.err)
				}
				return
			}
			if errors.Is(err, cli.ErrNotGood) != test.notGood || err != nil && !test.notGood {
				t.Errorf("error %v, want errNotGood: %v", err, test.notGood)
			}
			if diff := cmp.Diff(test.out, out); diff != "" && test.out != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
			if !strings.Contains(errOut, test.errOut) {
				t.Errorf("standard error is %q, want %q in it", errOut, test.errOut)
			}
		})
	}
}

func TestViewsAsJSON(t *testing.T) {
	view := clitest.NewView("all", 3)
	view.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "helm"}}
	out, _, err := run(t, viewsHub{views: []v1alpha1.FleetView{view}}.start(t), "views", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var list v1alpha1.FleetViewList
	err = json.Unmarshal([]byte(out), &list)
	got := list.Items
	if err != nil || list.Kind != "FleetViewList" || len(got) != 1 || got[0].Kind != "FleetView" || got[0].Status.Clusters != 3 || got[0].ManagedFields != nil {
		t.Errorf("got %v and %s, want the view without managed fields", err, out)
	}
}
