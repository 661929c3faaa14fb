package indexapi

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// indexLeaf is the certificate of the index, and apiLeaf that of the proxy API.
var (
	indexLeaf = pki.Leaf{CommonName: string(identity.RoleFleetIndex), DNSNames: []string{identity.FleetIndexHost}, Client: true, Server: true}
	apiLeaf   = pki.Leaf{CommonName: string(identity.RoleProxyAPI), DNSNames: []string{identity.ProxyAPIPeerHost}, Client: true, Server: true}
)

// serve starts an index and returns a client of it.
func serve(t *testing.T, leaf pki.Leaf, handler http.HandlerFunc) *Client {
	t.Helper()
	ca := pkitest.NewCA(t, "hub")
	server := httptest.NewUnstartedServer(handler)
	server.TLS = pkitest.NewReloader(t, ca, leaf, ca).ServerConfig(tls.RequireAndVerifyClientCert)
	server.TLS.NextProtos = []string{"h2"}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	server.StartTLS()
	client := NewClient(server.Listener.Addr().String(), pkitest.NewReloader(t, ca, apiLeaf, ca))
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client
}

// asking is a request about some clusters.
func asking(clusters ...string) *TablesRequest {
	request := &TablesRequest{}
	for _, name := range clusters {
		request.Clusters = append(request.Clusters, Cluster{Name: name})
	}
	return request
}

func freely(int) error { return nil }

// TestTables wants an answer for each cluster, in order, and an error for everything else.
func TestTables(t *testing.T) {
	full := errors.New("it is too much")
	other := indexLeaf
	other.CommonName = string(identity.RolePeer)
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		leaf   pki.Leaf
		take   func(int) error
		// seen are the clusters that were visited, and want is the error.
		seen, want string
	}{
		"all": {answer: func(w http.ResponseWriter, r *http.Request) {
			var request TablesRequest
			if err := json.NewDecoder(r.Body).Decode(&request); err != nil || r.URL.Path != TablesPath || r.Method != http.MethodPost || r.ProtoMajor != 2 {
				t.Errorf("%s %s by %s: %v", r.Method, r.URL, r.Proto, err)
			}
			for _, cluster := range request.Clusters {
				_ = WriteTable(w, Head{Cluster: cluster.Name}, []byte("table of "+cluster.Name))
			}
		}, seen: "a=table of a b=table of b"},
		"too few":        {answer: func(w http.ResponseWriter, _ *http.Request) { _ = WriteTable(w, Head{Cluster: "a"}, nil) }, seen: "a=", want: "unexpected EOF"},
		"another":        {answer: func(w http.ResponseWriter, _ *http.Request) { _ = WriteTable(w, Head{Cluster: "b"}, nil) }, want: `it answers for cluster "b" in the place of "a"`},
		"too many":       {answer: func(w http.ResponseWriter, _ *http.Request) { writeAll(w, "a", "b", "c") }, seen: "a= b=", want: `it also answers for cluster "c"`},
		"in the middle":  {answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"cluster":"a","size":9}`+"\nx") }, want: "unexpected EOF"},
		"no head":        {answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "this is none\n") }, want: "parsing what precedes a table"},
		"an endless one": {answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat(" ", 1<<20)) }, want: "reading what precedes a table"},
		"too large": {answer: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"cluster":"a","size":%d}`+"\n", MaxTable+1)
		}, want: "more than"},
		"not allowed": {answer: func(w http.ResponseWriter, _ *http.Request) { writeAll(w, "a", "b") }, take: func(int) error { return full }, want: full.Error()},
		"refused": {answer: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "it starts", http.StatusServiceUnavailable)
		}, want: "the fleet index answers 503: it starts"},
		"another role": {answer: func(http.ResponseWriter, *http.Request) { t.Error("a request has come") }, leaf: other, want: "is not"},
		"another name": {answer: func(http.ResponseWriter, *http.Request) { t.Error("a request has come") }, leaf: apiLeaf, want: identity.FleetIndexHost},
	} {
		t.Run(name, func(t *testing.T) {
			if test.leaf.CommonName == "" {
				test.leaf = indexLeaf
			}
			if test.take == nil {
				test.take = freely
			}
			var seen []string
			err := serve(t, test.leaf, test.answer).Tables(t.Context(), asking("a", "b"), test.take, func(head *Head, table []byte) error {
				seen = append(seen, head.Cluster+"="+string(table))
				return nil
			})
			if got := strings.Join(seen, " "); got != test.seen || (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("visited %q, %v; want %q and %q", got, err, test.seen, test.want)
			}
		})
	}
}

func writeAll(w io.Writer, clusters ...string) {
	for _, name := range clusters {
		_ = WriteTable(w, Head{Cluster: name}, nil)
	}
}

// TestSearches wants answers read, refusals told apart, and no request that is too large.
func TestSearches(t *testing.T) {
	client := serve(t, indexLeaf, func(w http.ResponseWriter, r *http.Request) {
		var request CountRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		switch {
		case request.Query == "wrong":
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"kind":"Status","message":"the query is wrong"}`)
		case request.Query == "much":
			fmt.Fprint(w, `{"hits":[`+strings.Repeat(" ", maxAnswer))
		case r.URL.Path == CountPath:
			fmt.Fprintf(w, `{"total":%d}`, len(request.By))
		case r.URL.Path == SearchPath:
			fmt.Fprintf(w, `{"hits":[{"cluster":%q}],"away":{"b":"2026-11-29T10:02:00Z"}}`, request.Clusters[0].Name)
		}
	})
	request := SearchRequest{Query: "web", Clusters: asking("a").Clusters}
	found, err := client.Search(t.Context(), &request)
	if err != nil || len(found.Hits) != 1 || found.Hits[0].Cluster != "a" || found.Away["b"].IsZero() {
		t.Errorf("found %+v, %v", found, err)
	}
	counted, err := client.Count(t.Context(), &CountRequest{SearchRequest: request, By: []string{"kind", "status"}})
	if err != nil || counted.Total != 2 {
		t.Errorf("counted %+v, %v", counted, err)
	}
	for query, want := range map[string]string{"wrong": "the fleet index answers 400: the query is wrong", "much": "answers with more than", strings.Repeat("x", MaxRequest): "and may have"} {
		if _, err := client.Search(t.Context(), &SearchRequest{Query: query}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.10s: %.200v, want %q", query, err, want)
		}
	}
	if _, err := client.Search(t.Context(), &SearchRequest{Clusters: make([]Cluster, MaxClusters+1)}); err == nil || !strings.Contains(err.Error(), "may be about") {
		t.Errorf("too many clusters: %v", err)
	}
}
