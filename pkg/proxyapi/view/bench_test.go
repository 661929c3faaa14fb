package view

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/accesspolicy"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// podTable is about what a kube-apiserver answers kubectl get pods with.
func podTable(rows int) []byte {
	table := metav1.Table{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"}, ListMeta: metav1.ListMeta{ResourceVersion: "1000"}}
	for i, name := range []string{"Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string", Description: strings.Repeat("what this column says. ", 12), Priority: int32(i / 5)})
	}
	for i := range rows {
		name := fmt.Sprintf("web-7d9f8c6b5-%05d", i)
		row := metav1.TableRow{Cells: []any{name, "1/1", "Running", "0", "3d4h", "10.0.12.17", "node-1.eu-west-1.example.com", "<none>", "<none>"}}
		row.Object.Raw = fmt.Appendf(nil, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":%q,"namespace":"shop","uid":"5c4d1e3a-0000-4000-8000-%012d","resourceVersion":"%d","creationTimestamp":"2026-11-26T10:00:00Z","labels":{"app":"web","pod-template-hash":"7d9f8c6b5"}}}`, name, i, 900+i)
		table.Rows = append(table.Rows, row)
	}
	body, err := json.Marshal(table)
	if err != nil {
		panic(err)
	}
	return body
}

// startIndex serves one table for each cluster, over TLS.
func startIndex(b *testing.B, table []byte) *indexapi.Client {
	ca := pkitest.NewCA(b, "hub")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked indexapi.TablesRequest
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			b.Error(err)
		}
		for _, cluster := range asked.Clusters {
			_ = indexapi.WriteTable(w, indexapi.Head{Cluster: cluster.Name}, table)
		}
	}))
	server.TLS = pkitest.NewReloader(b, ca, pki.Leaf{CommonName: string(identity.RoleFleetIndex), DNSNames: []string{identity.FleetIndexHost}, Server: true, Client: true}, ca).ServerConfig(tls.RequireAndVerifyClientCert)
	server.TLS.NextProtos, server.EnableHTTP2 = []string{"h2"}, true
	server.StartTLS()
	client := indexapi.NewClient(server.Listener.Addr().String(), pkitest.NewReloader(b, ca, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true}, ca))
	b.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client
}

// counter counts rows of an answer, and keeps what was written last.
type counter struct {
	http.ResponseWriter
	rows int
	end  []byte
}

func (c *counter) Write(p []byte) (int, error) {
	const cells = `"cells":`
	c.end = append(c.end[max(0, len(c.end)-len(cells)+1):], p...)
	c.rows += strings.Count(string(c.end), cells)
	return len(p), nil
}

// noPolicies is a hub without AccessPolicies.
type noPolicies struct{}

func (noPolicies) Set() (*accesspolicy.Set, error)     { return accesspolicy.NewSet(nil), nil }
func (noPolicies) Cluster(string) accesspolicy.Cluster { return accesspolicy.Cluster{} }

// BenchmarkIndexedList lists the pods of 5,000 clusters, 10 of each, as kubectl get does, from an index that knows them. It
// has no hub in it, and the index has no store.
func BenchmarkIndexedList(b *testing.B) {
	const clusters, rows = 5000, 10
	f := &Fleet{Filters: &filter.Filters{Metrics: metrics.New(prometheus.NewRegistry()), Policies: noPolicies{}}, Index: startIndex(b, podTable(rows)), Held: fleet.NewMemory()}
	handler := fleetview.New(fleetview.Options{})
	list := func(b *testing.B, query url.Values) *counter {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods?"+query.Encode(), nil)
		r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		info := &request.RequestInfo{Verb: "list"}
		rs := &scope.Scope{Kind: scope.View, User: &user.DefaultInfo{Name: "ann"}, Info: info, Inner: info}
		r = r.WithContext(context.WithValue(r.Context(), scope.Key{}, rs))
		q := &ViewRequest{Fleet: f, origin: r, Scope: rs}
		view := fleet.View{Name: "all", User: "ann", Account: "ann", Timeout: defaultClusterTimeout, Members: func(context.Context) ([]fleet.Member, error) {
			members := make([]fleet.Member, clusters)
			for i := range members {
				name := fmt.Sprintf("cluster-%05d", i)
				members[i] = &Member{ViewRequest: q, Cluster: name, uid: "uid-of-" + name}
			}
			return members, nil
		}}
		q.lists = newIndexedLists(r, f.Index, f.Held, &view)
		defer q.lists.end()
		recorder := httptest.NewRecorder()
		w := &counter{ResponseWriter: recorder}
		handler.Serve(w, r, view)
		if recorder.Code != http.StatusOK || len(q.lists.warnings.all) > 0 {
			b.Fatalf("%d %s, Warnings %q", recorder.Code, w.end, q.lists.warnings.all)
		}
		return w
	}
	b.Run("pages of 500", func(b *testing.B) {
		for b.Loop() {
			got := 0
			for query := (url.Values{"limit": {"500"}}); ; {
				page := list(b, query)
				got += page.rows
				_, rest, more := strings.Cut(string(page.end), `"continue":"`)
				if !more {
					break
				}
				token, _, _ := strings.Cut(rest, `"`)
				query.Set("continue", token)
			}
			if got != clusters*rows {
				b.Fatalf("%d rows, want %d", got, clusters*rows)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/list")
	})
	b.Run("one answer", func(b *testing.B) {
		for b.Loop() {
			if got := list(b, url.Values{}).rows; got != clusters*rows {
				b.Fatalf("%d rows, want %d", got, clusters*rows)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/list")
	})
}
