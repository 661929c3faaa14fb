package proxyapi

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// kubectlsAccept is what kubectl get sends.
const kubectlsAccept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"

// fakeIndex speaks the index's contract. It answers with the tables of the clusters unless tables is set.
type fakeIndex struct {
	tables func(w http.ResponseWriter, request *indexapi.TablesRequest)
	search func(request *indexapi.SearchRequest) (*indexapi.SearchAnswer, int)
	count  func(request *indexapi.CountRequest) *indexapi.CountAnswer

	mu       sync.Mutex
	asked    []indexapi.TablesRequest
	searched []indexapi.SearchRequest
	wrong    []string
}

func (f *fakeIndex) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, indexapi.MaxRequest))
	role, roleErr := pki.PeerRole(*r.TLS)
	if err != nil || roleErr != nil || role != identity.RoleProxyAPI || r.Method != http.MethodPost || r.ProtoMajor != 2 || len(r.Header["Authorization"]) > 0 || strings.Contains(string(raw), "hub-token") {
		f.wrong = append(f.wrong, fmt.Sprintf("%s %s by %s from %q: %v %v %s", r.Method, r.URL, r.Proto, role, err, r.Header, raw))
	}
	var answer any
	code := http.StatusOK
	switch r.URL.Path {
	case indexapi.TablesPath:
		var request indexapi.TablesRequest
		err = json.Unmarshal(raw, &request)
		f.asked = append(f.asked, request)
		if f.tables == nil {
			f.tables = answersOf(nil)
		}
		f.tables(w, &request)
	case indexapi.SearchPath:
		var request indexapi.SearchRequest
		err = json.Unmarshal(raw, &request)
		f.searched = append(f.searched, request)
		answer, code = f.search(&request)
	case indexapi.CountPath:
		var request indexapi.CountRequest
		err = json.Unmarshal(raw, &request)
		answer = f.count(&request)
	}
	if err != nil {
		f.wrong = append(f.wrong, err.Error())
	}
	if answer != nil {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(answer)
	}
}

// questions are those so far, and forgets them.
func (f *fakeIndex) questions() (asked []indexapi.TablesRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked, f.asked = f.asked, nil
	return asked
}

// answersOf answers with tables, and for some clusters with another head.
func answersOf(heads map[string]indexapi.Head) func(http.ResponseWriter, *indexapi.TablesRequest) {
	return func(w http.ResponseWriter, request *indexapi.TablesRequest) {
		for _, cluster := range request.Clusters {
			head, table := heads[cluster.Name], tableOf(cluster.Name, 2)
			if head.Cluster = cluster.Name; head.Forbidden != "" || head.Absent || head.Unindexed != "" {
				table = nil
			}
			_ = indexapi.WriteTable(w, head, table)
		}
	}
}

// tableOf is what a cluster's kube-apiserver answers kubectl with.
func tableOf(cluster string, rows int) []byte {
	table := metav1.Table{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"}, ListMeta: metav1.ListMeta{ResourceVersion: "1000"},
		ColumnDefinitions: []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name"}, {Name: "Status", Type: "string"}, {Name: "Age", Type: "string"}},
	}
	for i := range rows {
		name := fmt.Sprintf("web-%d", i)
		row := metav1.TableRow{Cells: []any{name, "Running on " + cluster, "3d"}}
		row.Object.Raw = fmt.Appendf(nil, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":%q,"namespace":"shop","uid":"%s-%d","resourceVersion":"%d","labels":{"app":"web"}}}`, name, cluster, i, 900+i)
		table.Rows = append(table.Rows, row)
	}
	body, err := json.Marshal(table)
	if err != nil {
		panic(err)
	}
	return body
}

// indexLeaf is the certificate of the fleet index.
func indexLeaf() pki.Leaf {
	return pki.Leaf{CommonName: string(identity.RoleFleetIndex), DNSNames: []string{identity.FleetIndexHost}, Client: true, Server: true}
}

// listenIndex returns what has a proxy API ask an index, and what starts the index in its world.
func listenIndex(t testing.TB, index http.Handler, leaf pki.Leaf) (set func(*Options), serve func(*world)) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.FleetIndex = listener.Addr().String() }, func(w *world) {
		config := pkitest.Load(t, w.issue("index", w.hubCA, leaf, w.hubCA)).ServerConfig(tls.RequireAndVerifyClientCert)
		config.NextProtos = []string{"h2"}
		server := &http.Server{Handler: index, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0)}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = server.ServeTLS(listener, "", "")
		}()
		t.Cleanup(func() {
			server.Close()
			<-done
		})
	}
}

// startIndexed starts a proxy API with an index, whose view "all" reads from it. live counts the lists that clusters
// were asked for.
func startIndexed(t testing.TB, index http.Handler, leaf pki.Leaf, change ...func(*Options)) (w *world, live *atomic.Int32) {
	t.Helper()
	set, serve := listenIndex(t, index, leaf)
	w = start(t, append(change, set)...)
	serve(w)
	live = new(atomic.Int32)
	for _, cluster := range []string{"cluster1", "cluster2"} {
		w.agent(cluster, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			live.Add(1)
			rw.Header().Set("Content-Type", "application/json")
			_, _ = rw.Write(tableOf(cluster, 2))
		}), cluster)
	}
	w.addView("all", "cluster1", "cluster2").Spec.Reads = proxyv1alpha1.ReadsIndexed
	w.addView("live", "cluster1", "cluster2").Spec.Reads = proxyv1alpha1.ReadsLive
	w.addView("one", "cluster1").Spec.Reads = proxyv1alpha1.ReadsIndexed
	shop := w.addView("shop", "cluster1", "cluster2")
	shop.Spec.Reads = proxyv1alpha1.ReadsIndexed
	shop.Spec.Resources = []proxyv1alpha1.FleetViewResource{{Resource: "pods", Namespaces: []string{"shop"}}}
	whole := w.addView("whole", "cluster1", "cluster2")
	whole.Spec.Reads, whole.Spec.WhenUnreachable = proxyv1alpha1.ReadsIndexed, proxyv1alpha1.WhenUnreachableFail
	w.api.User("hub-token", "jane")
	w.api.Allow("jane get fleetviews *", "jane list clusters/proxy *", "jane get clusters/proxy *")
	return w, live
}

// rowsOf are the rows of a Table of a view, without what is of the time at which it was asked for.
func rowsOf(t *testing.T, body string) (rows []string, continues string) {
	t.Helper()
	var table metav1.Table
	if err := json.Unmarshal([]byte(body), &table); err != nil || table.Kind != "Table" {
		t.Fatalf("%v: %s, want a Table", err, body)
	}
	for _, row := range table.Rows {
		var object unstructured.Unstructured
		if err := json.Unmarshal(row.Object.Raw, &object.Object); err != nil {
			t.Fatal(err)
		}
		object.SetResourceVersion("")
		rows = append(rows, fmt.Sprint(row.Cells, object.Object))
	}
	return append(rows, fmt.Sprint(table.ColumnDefinitions)), table.Continue
}

// list asks a view for a list as kubectl does.
func (w *world) list(path string) (*http.Response, string) {
	w.t.Helper()
	return w.ask(http.MethodGet, path, "hub-token", "Accept", kubectlsAccept)
}

// TestIndexedIsAsLive has the same rows from the index and from clusters, and wants the index to get to know who asks, of
// which clusters and what, and no credential.
func TestIndexedIsAsLive(t *testing.T) {
	index := &fakeIndex{}
	w, live := startIndexed(t, index, indexLeaf())
	for _, path := range []string{"/api/v1/pods?limit=500", "/api/v1/pods", "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb&limit=3", "/api/v1/pods?fieldSelector=metadata.cluster%3Dcluster2"} {
		resp, body := w.list("/@live" + path)
		want, _ := rowsOf(t, body)
		if resp.StatusCode != 200 || live.Swap(0) == 0 {
			t.Fatalf("%s live: %d %s", path, resp.StatusCode, body)
		}
		resp, body = w.list("/@all" + path)
		got, _ := rowsOf(t, body)
		if diff := cmp.Diff(want, got); resp.StatusCode != 200 || diff != "" || live.Load() > 0 || len(resp.Header["Warning"]) > 0 {
			t.Errorf("%s: %d, %d questions to clusters, Warnings %q; rows (-live +indexed):\n%s", path, resp.StatusCode, live.Load(), resp.Header["Warning"], diff)
		}
	}
	asked := map[string]indexapi.TablesRequest{}
	for _, question := range index.questions() {
		for _, cluster := range question.Clusters {
			question.Clusters = nil
			asked[fmt.Sprintf("%s %s %d %s", cluster.Name, cluster.UID, question.Limit, question.LabelSelector)] = question
		}
	}
	one := asked["cluster2 uid-of-cluster2 3 app=web"]
	if len(index.wrong) > 0 || len(asked) < 5 || one.Namespace != "shop" || one.Resource.Resource != "pods" || one.Version != "v1" || !one.Metadata || one.Caller.Name != "jane" {
		t.Errorf("questions %+v, and wrong ones: %s", asked, index.wrong)
	}
	for _, of := range []string{"/@one", "/@live"} {
		if _, body := w.list(of + "/api/v1/pods"); live.Swap(0) == 0 || len(index.questions()) > 0 {
			t.Errorf("%s asks the index: %s", of, body)
		}
	}
	if resp, body := w.ask(http.MethodGet, "/@all/api/v1/pods?resourceVersion=0", "hub-token", "Accept", "application/json"); live.Swap(0) != 2 || len(index.questions()) > 0 {
		t.Errorf("whole objects: %d %s; want them from the clusters", resp.StatusCode, body)
	}
	if got := testutil.ToFloat64(w.server.metrics.ViewClusters.WithLabelValues(metrics.Indexed)); got != 7 {
		t.Errorf("%v answers are counted as the index's, want 7", got)
	}
}

// TestRulesOfIndexedViews wants the index asked for no more than the view has.
func TestRulesOfIndexedViews(t *testing.T) {
	index := &fakeIndex{}
	w, _ := startIndexed(t, index, indexLeaf())
	if resp, body := w.list("/@shop/api/v1/pods"); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	asked := index.questions()
	for _, question := range asked {
		if question.Namespace != "shop" {
			t.Errorf("it asks for namespace %q", question.Namespace)
		}
	}
	for _, path := range []string{"/@shop/api/v1/nodes", "/@shop/api/v1/namespaces/other/pods"} {
		if resp, body := w.list(path); resp.StatusCode != 404 || len(index.questions()) > 0 {
			t.Errorf("%s: %d %s, want 404, and nothing asked", path, resp.StatusCode, body)
		}
	}
	// The hub decides which clusters there are.
	w.api.User("another", "bob")
	w.api.Allow("bob get fleetviews *", "bob list clusters/proxy cluster2")
	if resp, body := w.ask(http.MethodGet, "/@all/api/v1/pods", "another", "Accept", kubectlsAccept); resp.StatusCode != 200 || strings.Contains(body, "cluster1") {
		t.Errorf("%d %s, want cluster2 only", resp.StatusCode, body)
	}
	for _, question := range index.questions() {
		if len(question.Clusters) != 1 || question.Clusters[0].Name != "cluster2" || question.Caller.Name != "bob" {
			t.Errorf("it asks %+v", question)
		}
	}
	if len(asked) == 0 {
		t.Error("the index was not asked")
	}
}

// TestAnswersOfTheIndex has each answer that the index may give for a cluster.
func TestAnswersOfTheIndex(t *testing.T) {
	heard := time.Date(2026, 11, 29, 10, 2, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		view string
		head indexapi.Head
		// indexed are the rows of cluster1, and live how many clusters were asked.
		indexed, live int
		warning       string
	}{
		"forbidden":          {head: indexapi.Head{Forbidden: `User "jane" cannot list resource "pods"`}, warning: `cluster cluster1 refused (pods is forbidden: User \"jane\" cannot list resource \"pods\"); its objects are not shown`},
		"absent":             {head: indexapi.Head{Absent: true}},
		"unindexed":          {head: indexapi.Head{Unindexed: "its agent is too old"}, indexed: 2, live: 1},
		"away":               {head: indexapi.Head{AsOf: heard, Remembered: true}, indexed: 2, warning: "cluster cluster1 was last heard at 2026-11-29T10:02:00Z; its objects are as of then"},
		"incomplete":         {head: indexapi.Head{Incomplete: "1000 of its pods"}, indexed: 2, warning: "cluster cluster1 is incomplete in the fleet index (1000 of its pods)"},
		"away, all or none":  {view: "whole", head: indexapi.Head{AsOf: heard}, indexed: 2, live: 1},
		"in part, all or no": {view: "whole", head: indexapi.Head{Incomplete: "x"}, indexed: 2, live: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w, live := startIndexed(t, &fakeIndex{tables: answersOf(map[string]indexapi.Head{"cluster1": test.head})}, indexLeaf())
			if test.view == "" {
				test.view = "all"
			}
			resp, body := w.list("/@" + test.view + "/api/v1/pods?limit=500")
			if got := strings.Count(body, "Running on cluster1"); resp.StatusCode != 200 || got != test.indexed || strings.Count(body, "Running on cluster2") != 2 || int(live.Load()) != test.live {
				t.Errorf("%d %s: %d rows of cluster1, %d clusters asked; want %d and %d", resp.StatusCode, body, got, live.Load(), test.indexed, test.live)
			}
			if got := strings.Join(resp.Header["Warning"], "\n"); got != "" && test.warning == "" || !strings.Contains(got, test.warning) {
				t.Errorf("Warnings %s, want %q", got, test.warning)
			}
		})
	}
}

// TestIndexesThatCannotBeBelieved has indexes that break off, answer for another cluster, or are none. The clusters are
// asked, with one Warning.
func TestIndexesThatCannotBeBelieved(t *testing.T) {
	tables := func(f func(w http.ResponseWriter, request *indexapi.TablesRequest)) *fakeIndex {
		return &fakeIndex{tables: f}
	}
	role := indexLeaf()
	role.CommonName = string(identity.RoleClient)
	name := indexLeaf()
	name.DNSNames = []string{identity.ProxyAPIPeerHost}
	for of, test := range map[string]struct {
		index *fakeIndex
		leaf  pki.Leaf
	}{
		"another role": {&fakeIndex{}, role},
		"another name": {&fakeIndex{}, name},
		"another cluster": {tables(func(w http.ResponseWriter, request *indexapi.TablesRequest) {
			_ = indexapi.WriteTable(w, indexapi.Head{Cluster: "cluster3"}, tableOf("cluster3", 2))
		}), indexLeaf()},
		"another one too": {tables(func(w http.ResponseWriter, request *indexapi.TablesRequest) {
			_ = indexapi.WriteTable(w, indexapi.Head{Cluster: "cluster3"}, tableOf("cluster3", 2))
			answersOf(nil)(w, request)
		}), indexLeaf()},
		"breaks off in a table": {tables(func(w http.ResponseWriter, request *indexapi.TablesRequest) {
			fmt.Fprintf(w, `{"cluster":%q,"size":4096}`+"\n"+`{"kind":"Table","rows":[`, request.Clusters[0].Name)
		}), indexLeaf()},
		"no end of a head": {tables(func(w http.ResponseWriter, request *indexapi.TablesRequest) {
			_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
		}), indexLeaf()},
		"no table at all": {tables(func(http.ResponseWriter, *indexapi.TablesRequest) {}), indexLeaf()},
		"refuses": {tables(func(w http.ResponseWriter, _ *indexapi.TablesRequest) {
			http.Error(w, "it starts", http.StatusServiceUnavailable)
		}), indexLeaf()},
		"cuts off": {tables(func(http.ResponseWriter, *indexapi.TablesRequest) { panic(http.ErrAbortHandler) }), indexLeaf()},
	} {
		t.Run(of, func(t *testing.T) {
			w, live := startIndexed(t, test.index, test.leaf)
			resp, body := w.list("/@all/api/v1/pods?limit=500")
			if resp.StatusCode != 200 || strings.Count(body, "Running on cluster1") != 2 || strings.Count(body, "Running on cluster2") != 2 || strings.Contains(body, "cluster3") || live.Load() != 2 {
				t.Errorf("%d %s, %d clusters asked; want the rows of both from themselves", resp.StatusCode, body, live.Load())
			}
			if diff := cmp.Diff([]string{`299 - "the fleet index did not answer: clusters were asked themselves"`}, resp.Header["Warning"]); diff != "" {
				t.Errorf("Warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestViewsWithoutAnIndex has a view that is to read from an index that there is not.
func TestViewsWithoutAnIndex(t *testing.T) {
	w, live := startIndexed(t, &fakeIndex{}, indexLeaf())
	other := w.another(t, func(o *Options) { o.FleetIndex = "" })
	resp, body := other.list("/@all/api/v1/pods?limit=500")
	if resp.StatusCode != 200 || live.Load() != 2 || !strings.Contains(strings.Join(resp.Header["Warning"], ""), "the proxy API has none (--fleet-index): clusters were asked themselves") {
		t.Errorf("%d %s with Warnings %q; want the clusters' rows, and why", resp.StatusCode, body, resp.Header["Warning"])
	}
}

// TestPagesOfTheIndex goes on where the index ended a page, and says that the list has expired if that cannot be.
func TestPagesOfTheIndex(t *testing.T) {
	down := false
	index := &fakeIndex{}
	index.tables = func(w http.ResponseWriter, request *indexapi.TablesRequest) {
		for _, cluster := range request.Clusters {
			head, table := indexapi.Head{Cluster: cluster.Name}, tableOf(cluster.Name, 1)
			if down {
				head.Unindexed, table = "it starts", nil
			} else if cluster.Name == "cluster1" && cluster.Continue == "" {
				table = []byte(strings.Replace(string(table), `"metadata":{`, `"metadata":{"continue":"_sealed_",`, 1))
			}
			_ = indexapi.WriteTable(w, head, table)
		}
	}
	w, live := startIndexed(t, index, indexLeaf())
	_, body := w.list("/@all/api/v1/pods?limit=1")
	_, token := rowsOf(t, body)
	index.questions()
	if _, body = w.list("/@all/api/v1/pods?limit=1&continue=" + token); live.Load() > 0 || !strings.Contains(body, "Running on cluster1") {
		t.Errorf("the second page is %s, with %d clusters asked", body, live.Load())
	}
	if asked := index.questions(); len(asked) != 1 || asked[0].Clusters[0].Continue != "_sealed_" {
		t.Errorf("the index is asked %+v, want its token", asked)
	}
	index.mu.Lock()
	down = true
	index.mu.Unlock()
	if resp, body := w.list("/@all/api/v1/pods?limit=1&continue=" + token); resp.StatusCode != http.StatusGone || live.Load() > 0 {
		t.Errorf("%d %s and %d clusters asked, want 410 and none", resp.StatusCode, body, live.Load())
	}
}

// TestIndexedListsAreAudited wants to see who answered, and whose rights were remembered.
func TestIndexedListsAreAudited(t *testing.T) {
	log, set := withAuditLog(t)
	w, _ := startIndexed(t, &fakeIndex{tables: answersOf(map[string]indexapi.Head{
		"cluster1": {AsOf: time.Unix(1, 0), Remembered: true},
	})}, indexLeaf(), set)
	w.list("/@all/api/v1/pods")
	found := w.eventsOf(t, log)
	if len(found) != 1 {
		t.Fatalf("%d events, want 1", len(found))
	}
	for key, want := range map[string]string{"clusters": "cluster1,cluster2", "indexed": "cluster1,cluster2", "remembered-rights": "cluster1"} {
		if got := found[0].Annotations[scope.AnnotationPrefix+key]; got != want {
			t.Errorf("annotation %s is %q, want %q", key, got, want)
		}
	}
}
