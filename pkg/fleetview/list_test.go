package fleetview

import (
	"fmt"
	"net/http"
	neturl "net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

const shop = "/api/v1/namespaces/shop/pods"

func TestList(t *testing.T) {
	a := newCluster("a", shop+"/web-1", shop+"/web-2")
	b := newCluster("b", shop+"/db", "/api/v1/namespaces/other/pods/web-1")
	a.set(shop+"/web-2", object{"metadata": map[string]any{
		"labels": map[string]any{"app": "web"}, "annotations": map[string]any{fleet.AnnotationCluster: "b", "x": "y"},
	}})
	b.set("/apis/example.com/v1/namespaces/shop/widgets/w", nil)
	b.set("/api/v1/namespaces/shop/events/e", object{"involvedObject": map[string]any{"name": "web-1"}})
	tests := map[string]struct {
		url  string
		want []string
	}{
		"all namespaces":        {"/api/v1/pods", []string{"web-1@a", "web-2@a", "web-1@b", "db@b"}},
		"one namespace":         {shop, []string{"web-1@a", "web-2@a", "db@b"}},
		"trailing slash":        {shop + "/", []string{"web-1@a", "web-2@a", "db@b"}},
		"one cluster":           {shop + "?fieldSelector=metadata.cluster%3Db", []string{"db@b"}},
		"all but one cluster":   {shop + "?fieldSelector=metadata.cluster!%3Db", []string{"web-1@a", "web-2@a"}},
		"cluster and name":      {"/api/v1/pods?fieldSelector=metadata.cluster%3D%3Da,metadata.name%3Dweb-1", []string{"web-1@a"}},
		"name of all":           {"/api/v1/pods?fieldSelector=metadata.name%3Dweb-1", []string{"web-1@a", "web-1@b"}},
		"name@cluster":          {"/api/v1/pods?fieldSelector=metadata.name%3Dweb-1@b", []string{"web-1@b"}},
		"name@ no cluster":      {"/api/v1/pods?fieldSelector=metadata.name%3Dweb-1@c", []string{}},
		"not name":              {"/api/v1/pods?fieldSelector=metadata.name!%3Dweb-1", []string{"web-2@a", "db@b"}},
		"involved object":       {"/api/v1/events?fieldSelector=involvedObject.name%3Dweb-1@b", []string{"e@b"}},
		"involved object of a":  {"/api/v1/events?fieldSelector=involvedObject.name%3Dweb-1@a", []string{}},
		"labels":                {"/api/v1/pods?labelSelector=app%3Dweb", []string{"web-2@a"}},
		"custom resources":      {"/apis/example.com/v1/widgets", []string{"w@b"}},
		"in the members' cache": {shop + "?resourceVersion=0", []string{"web-1@a", "web-2@a", "db@b"}},
	}
	h := New(Options{})
	for name, test := range tests {
		for _, accept := range []string{"application/json", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"} {
			got := h.getList(t, testView(a, b), test.url, "Accept", accept)
			if diff := cmp.Diff(test.want, got.names()); got.code != http.StatusOK || diff != "" {
				t.Errorf("%s as %s: got %d %q; names (-want +got):\n%s", name, accept, got.code, got.body, diff)
			}
			if len(got.warnings) > 0 {
				t.Errorf("%s: got Warnings %q", name, got.warnings)
			}
			if _, err := version.Parse(got.list.Metadata.ResourceVersion); err != nil {
				t.Errorf("%s: got version %q: %v", name, got.list.Metadata.ResourceVersion, err)
			}
		}
	}
}

func TestListOfNothing(t *testing.T) {
	h := New(Options{})
	a := newCluster("a", shop+"/web-1")
	tests := map[string]struct {
		view    fleet.View
		url     string
		code    int
		message string
	}{
		"no clusters":        {testView(), shop, 403, "no cluster that you may reach: bind a role such as ClusterRole cluster-proxy-user on the hub"},
		"no such cluster":    {testView(a), shop + "?fieldSelector=metadata.cluster%3Dc", 404, `no cluster "c" that you may reach; it has: a`},
		"no resource":        {testView(a), "/api/v1/nonsense", 404, "could not find the requested resource"},
		"no path of objects": {testView(a), "/metrics", 404, "ask one cluster"},
		"former watch":       {testView(a), "//api/v1/watch/pods", 404, "ask one cluster"},
		"former proxy":       {testView(a), "/api/v1/proxy/namespaces/shop/pods/web-1@a", 404, "ask one cluster"},
		"bad field selector": {testView(a), shop + "?fieldSelector=a%3Db%3Dc", 400, "field selector"},
		"selector of others": {testView(a), shop + "?fieldSelector=spec.nonsense%3Db", 400, "not supported"},
		"bad limit":          {testView(a), shop + "?limit=many", 400, `limit "many"`},
		"bad token":          {testView(a), shop + "?limit=1&continue=from-1-of-2", 400, "not one of a fleet view"},
		"bad version":        {testView(a), shop + "?resourceVersion=x", 400, "not one of a fleet view"},
		"unknown version":    {testView(a), shop + "?resourceVersionMatch=Exact&resourceVersion=" + version.Version{Time: 1_700_000_000_000_000}.String(), 410, "list again"},
		"dots":               {testView(a), "/api/v1/namespaces/shop/pods/../secrets", 400, "dots"},
		"encoded slash":      {testView(a), "/api/v1/namespaces/shop%2Fpods/x", 400, "slash"},
		"slash as a name":    {testView(a), "/api/v1/pods/%2F", 400, "slash"},
		"slash behind it":    {testView(a), shop + "/web-1/%2F", 400, "slash"},
		"all forbid it":      {testView(a.failing(refusing(403)), newCluster("b").failing(refusing(403))), shop, 403, "user ann"},
		"nobody answers":     {testView(newCluster("b").failing(away), newCluster("c").failing(refusing(500))), shop, 503, "2 clusters"},
		"none is there":      {testView(newCluster("b").failing(away)), shop, 503, "no tunnel since 10:02"},
		"evil statuses":      {testView(newCluster("b").failing(evilStatus)), shop, 503, "did not answer"},
		"status without code": {testView(newCluster("b").failing(func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `{"kind":"Status","message":"no","code":7}`)
			return true
		})), shop, 403, "no"},
	}
	for name, test := range tests {
		if name != "all forbid it" {
			a.failing(nil)
		} else {
			a.failing(refusing(403))
		}
		got := h.getList(t, test.view, test.url)
		if got.code != test.code || !strings.Contains(got.status.Message, test.message) {
			t.Errorf("%s: got %d %q, want %d with %q", name, got.code, got.status.Message, test.code, test.message)
		}
	}
}

func evilStatus(w http.ResponseWriter, _ *http.Request) bool {
	w.WriteHeader(http.StatusFound)
	return true
}

// TestWarnings has members with all kinds of faults beside one that answers.
func TestWarnings(t *testing.T) {
	const its = "; its objects are not shown"
	faults := map[string]struct {
		fault func(http.ResponseWriter, *http.Request) bool
		want  string
	}{
		"away":      {away, "did not answer (no tunnel since 10:02)"},
		"forbidden": {refusing(403), "refused (code 403 is the answer to user ann)"},
		"busy":      {refusing(429), "refused (code 429 is the answer to user ann)"},
		"wrong":     {refusing(500), "refused (code 500 is the answer to user ann)"},
		"redirects": {evilStatus, "did not answer (302 Found)"},
		"nonsense":  {saying("application/json", "<html>"), `did not answer (its answer is not usable: reading a list: the answer is neither a list nor a Table)`},
		"html":      {saying("text/html", "<html>"), `did not answer (its answer is "text/html" instead of "application/json")`},
		"a status":  {saying("application/json", `{"kind":"Status","metadata":{}}`), `reading a list: the answer is a "Status"`},
		"other":     {saying("application/json", `{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[]}`), "it is a SecretList of \"v1\" and not a PodList"},
		"no items":  {saying("application/json", `{"kind":"PodList","items":[7]}`), "it is no object"},
		"cut":       {saying("application/json", `{"kind":"PodList","items":[{"metadata":{"na`), "unexpected EOF"},
		"twice":     {saying("application/json", `{"kind":"PodList","items":[{"metadata":{},"metadata":{}}]}`), "given twice"},
		"huge item": {saying("application/json", `{"kind":"PodList","items":[{"x":"`+strings.Repeat("x", 17<<20)), "16 MiB"},
		"huge head": {refusingHugely, "refused (xxxx"},
	}
	for name, test := range faults {
		t.Run(name, func(t *testing.T) {
			a, c := newCluster("a", shop+"/web-1"), newCluster("c", shop+"/web-3")
			view := testView(a, newCluster("b", shop+"/web-2").failing(test.fault), c)
			h := New(Options{})
			got := h.getList(t, view, shop)
			if diff := cmp.Diff([]string{"web-1@a", "web-3@c"}, got.names()); diff != "" {
				t.Errorf("got %q; names (-want +got):\n%s", got.body, diff)
			}
			if len(got.warnings) != 1 {
				t.Fatalf("got Warnings %.2000q, want one", got.warnings)
			}
			warning := strings.ReplaceAll(got.warnings[0], `\"`, `"`)
			if !strings.HasPrefix(warning, `299 - "cluster b `) || !strings.Contains(warning, test.want) || len(warning) > 600 {
				t.Errorf("got Warning %q, want one with %q", warning, test.want+its)
			}
			view.FailWhenUnreachable = true
			got = h.getList(t, view, shop)
			if got.code != http.StatusServiceUnavailable || got.status.Details == nil || len(got.status.Details.Causes) != 1 || got.status.Details.Causes[0].Field != "b" {
				t.Errorf("failing when unreachable: got %d %q, want 503 with a cause", got.code, got.body)
			}
		})
	}
}

func refusingHugely(w http.ResponseWriter, _ *http.Request) bool {
	w.WriteHeader(http.StatusForbidden)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","message":%q}`, strings.Repeat("x", 10_000))
	return true
}

func TestWarningsAreCounted(t *testing.T) {
	clusters := []*cluster{newCluster("m", shop+"/web-1")}
	for i := range 7 {
		clusters = append(clusters, newCluster(fmt.Sprintf("b%d", i)).failing(refusing(500)), newCluster(fmt.Sprintf("a%d", i)).failing(away))
	}
	got := New(Options{}).getList(t, testView(clusters...), shop)
	if len(got.warnings) != 11 || !strings.Contains(got.warnings[10], "4 more clusters did not answer, or refused; their objects are not shown") || !slices.IsSorted(got.warnings[:10]) {
		t.Errorf("got Warnings %q, want 10 that are sorted and a count", got.warnings)
	}
	if want := `299 - "cluster a0 did not answer (no tunnel since 10:02); its objects are not shown"`; got.warnings[0] != want {
		t.Errorf("got Warning %s, want %s", got.warnings[0], want)
	}
}

func TestTable(t *testing.T) {
	a, b := newCluster("a", shop+"/web-1"), newCluster("b", shop+"/web-2")
	a.columns, b.columns = []string{"Ready", "Node"}, []string{"Ready", "Zone"}
	view := testView(a, b)
	view.Qualified = true
	got := New(Options{}).getList(t, view, shop, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	var columns []string
	for _, column := range got.list.ColumnDefinitions {
		columns = append(columns, column.Name)
	}
	if diff := cmp.Diff([]string{"Cluster", "Name", "Ready", "Node", "Zone"}, columns); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	want := [][]any{{"a", "web-1@a", "ready", "node"}, {"b", "web-2@b", "ready", "", "zone"}}
	for i, row := range got.list.Rows {
		if diff := cmp.Diff(want[i], row.Cells); diff != "" {
			t.Errorf("row %d (-want +got):\n%s", i, diff)
		}
	}
	if got.list.Kind != "Table" || got.list.APIVersion != "meta.k8s.io/v1" || len(got.list.Rows) != 2 {
		t.Errorf("got %s", got.body)
	}
}

func TestCollisions(t *testing.T) {
	view := testView(newCluster("a", shop+"/web-1"), newCluster("b", shop+"/web-1"))
	got := New(Options{}).getList(t, view, shop)
	if len(got.warnings) != 1 || !strings.Contains(got.warnings[0], "Qualified") {
		t.Errorf("got Warnings %q, want one of a collision", got.warnings)
	}
	view.Qualified = true
	if got := New(Options{}).getList(t, view, shop); len(got.warnings) != 0 {
		t.Errorf("qualified: got Warnings %q, want none", got.warnings)
	}
}

func TestListExactly(t *testing.T) {
	a, b, c := newCluster("a", pods(3)...), newCluster("b", pods(1)...), newCluster("c", pods(1)...).failing(away)
	h := New(Options{})
	listed := h.getList(t, testView(a, b, c), shop)
	a.asked()
	c.failing(nil)
	got := h.getList(t, testView(a, b, c), shop+"?limit=1&resourceVersionMatch=Exact&resourceVersion="+listed.list.Metadata.ResourceVersion)
	if len(got.list.Items) != 4 || got.list.Metadata.Continue != "" {
		t.Errorf("got %q, want all objects of the two that were listed", got.body)
	}
	if asked := a.asked(); len(asked) != 1 || asked[0].url != shop+"?resourceVersion=103&resourceVersionMatch=Exact" {
		t.Errorf("a was asked %+v, want its own version", asked)
	}
	if asked := c.asked(); len(asked) != 1 {
		t.Errorf("c was asked %+v, want nothing but the first list", asked)
	}
	got = h.getList(t, testView(a, b), shop+"?resourceVersionMatch=NotOlderThan&resourceVersion="+listed.list.Metadata.ResourceVersion)
	if got.code != http.StatusOK || a.asked()[0].url != shop {
		t.Errorf("not older than: got %d %q, want the newest", got.code, got.body)
	}
}

// TestRemainingItems wants to know how many items follow, when one member has all of them.
func TestRemainingItems(t *testing.T) {
	failing := newCluster("c", pods(1)...).failing(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	for name, test := range map[string]struct {
		clusters []*cluster
		query    string
		want     []int64 // by page, -1 if it is not said
	}{
		"one member":              {[]*cluster{newCluster("a", pods(3)...)}, "limit=1", []int64{2, 1, -1}},
		"one of two is chosen":    {[]*cluster{newCluster("a", pods(3)...), newCluster("b", pods(1)...)}, "limit=1&fieldSelector=metadata.cluster%3Da", []int64{2, 1, -1}},
		"the second has the rest": {[]*cluster{newCluster("a", pods(1)...), newCluster("b", pods(4)...)}, "limit=2", []int64{-1, 2, -1}},
		"the first has none":      {[]*cluster{newCluster("a"), newCluster("b", pods(3)...)}, "limit=1", []int64{2, 1, -1}},
		"the second comes later":  {[]*cluster{newCluster("a", pods(3)...), newCluster("b", pods(2)...)}, "limit=2", []int64{-1, 1, -1}},
		"another one is deferred": {[]*cluster{newCluster("a", pods(1)...), newCluster("b", pods(3)...), failing}, "limit=2", []int64{-1, -1, -1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, url := New(Options{}), shop+"?"+test.query
				var got []int64
				for more := ""; len(got) <= len(test.want); {
					page := h.getList(t, testView(test.clusters...), url+more)
					count := int64(-1)
					if said := page.list.Metadata.RemainingItemCount; said != nil {
						count = *said
					}
					got = append(got, count)
					if page.list.Metadata.Continue == "" {
						break
					}
					more = "&continue=" + neturl.QueryEscape(page.list.Metadata.Continue)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("remaining items by page (-want +got):\n%s", diff)
				}
			})
		})
	}
}
