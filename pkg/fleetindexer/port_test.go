package fleetindexer

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// TestPort serves clients of each kind over TLS.
func TestPort(t *testing.T) {
	f := newFixture(t)
	f.put(t, "a", printed("shop", "web-0"))
	ca, other := pkitest.NewCA(t, "hub"), pkitest.NewCA(t, "other")
	own := pkitest.NewReloader(t, ca, pki.Leaf{CommonName: string(identity.RoleFleetIndex), DNSNames: []string{identity.FleetIndexHost}, Client: true, Server: true}, ca)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.serve(ctx, own, listener) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	client := func(source *pki.Reloader) *http.Client {
		transport := &http.Transport{TLSClientConfig: source.ClientConfig(identity.FleetIndexHost), ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	of := func(role identity.Role) *http.Client {
		return client(pkitest.NewReloader(t, ca, pki.Leaf{CommonName: string(role), Client: true}, ca))
	}
	proxyAPI := of(identity.RoleProxyAPI)
	tables := func(clusters ...indexapi.Cluster) string {
		body, _ := json.Marshal(indexapi.TablesRequest{Caller: jane, Resource: pods, Version: "v1", Clusters: clusters})
		return string(body)
	}
	many := make([]indexapi.Cluster, indexapi.MaxClusters+1)
	for i := range many {
		many[i].Name = fmt.Sprint(i)
	}
	for name, c := range map[string]struct {
		client     *http.Client
		path, body string
		code       int
		message    string
	}{
		"the proxy API":       {proxyAPI, indexapi.TablesPath, tables(asked("a")...), http.StatusOK, ""},
		"a search":            {proxyAPI, indexapi.SearchPath, `{"caller":{"name":"jane"},"clusters":[{"name":"a","uid":"uid-a"}],"query":"web"}`, http.StatusOK, ""},
		"a client":            {of(identity.RoleClient), indexapi.TablesPath, tables(asked("a")...), http.StatusForbidden, "for the proxy API"},
		"another index":       {of(identity.RoleFleetIndex), indexapi.SearchPath, "{}", http.StatusForbidden, "for the proxy API"},
		"a proxy server":      {of(identity.RolePeer), indexapi.CountPath, "{}", http.StatusForbidden, "for the proxy API"},
		"no role":             {of("jane"), indexapi.TablesPath, "{}", http.StatusForbidden, "for the proxy API"},
		"another CA":          {client(pkitest.NewReloader(t, other, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true}, ca)), indexapi.TablesPath, "{}", 0, ""},
		"another path":        {proxyAPI, "/metrics", "", http.StatusNotFound, indexapi.SearchPath},
		"no JSON":             {proxyAPI, indexapi.TablesPath, "x", http.StatusBadRequest, "parsed"},
		"a huge body":         {proxyAPI, indexapi.TablesPath, `{"namespace":"` + strings.Repeat("x", indexapi.MaxRequest) + `"}`, http.StatusRequestEntityTooLarge, "fewer clusters"},
		"too many clusters":   {proxyAPI, indexapi.TablesPath, tables(many...), http.StatusBadRequest, "10001 clusters"},
		"a cluster twice":     {proxyAPI, indexapi.TablesPath, tables(asked("a", "a")...), http.StatusBadRequest, "twice"},
		"no user":             {proxyAPI, indexapi.SearchPath, "{}", http.StatusForbidden, "no name"},
		"a user of two lines": {proxyAPI, indexapi.TablesPath, `{"caller":{"name":"jane\nX-Remote-User: admin"}}`, http.StatusForbidden, "control characters"},
		"a strange selector":  {proxyAPI, indexapi.TablesPath, `{"caller":{"name":"jane"},"version":"v1","labelSelector":"a=="}`, http.StatusOK, ""},
		"no selector":         {proxyAPI, indexapi.TablesPath, `{"caller":{"name":"jane"},"version":"v1","labelSelector":"!!"}`, http.StatusBadRequest, "selectors"},
		"a negative limit":    {proxyAPI, indexapi.TablesPath, `{"caller":{"name":"jane"},"version":"v1","limit":-1}`, http.StatusBadRequest, "negative"},
		"another's token":     {proxyAPI, indexapi.TablesPath, tables(indexapi.Cluster{Name: "a", UID: "uid-a", Continue: "eyJhIjoxfQ"}), http.StatusGone, "token"},
		"no query":            {proxyAPI, indexapi.SearchPath, `{"caller":{"name":"jane"},"query":"x:y"}`, http.StatusBadRequest, "no key"},
		"a strange count":     {proxyAPI, indexapi.CountPath, `{"caller":{"name":"jane"},"by":["uid"]}`, http.StatusBadRequest, "uid"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := c.client.Post("https://"+listener.Addr().String()+c.path, "application/json", strings.NewReader(c.body))
			if c.code == 0 {
				if err == nil {
					_ = resp.Body.Close()
					t.Error("it was answered")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != c.code || resp.ProtoMajor != 2 {
				t.Fatalf("got %d by HTTP/%d, %v: %s", resp.StatusCode, resp.ProtoMajor, err, body)
			}
			var s metav1.Status
			if c.code != http.StatusOK && (json.Unmarshal(body, &s) != nil || s.Kind != "Status" || int(s.Code) != c.code || !strings.Contains(s.Message, c.message)) {
				t.Errorf("got %s", body)
			}
			if c.code == http.StatusOK && c.body == tables(asked("a")...) && !strings.Contains(string(body), `"web-0"`) {
				t.Errorf("got %s", body)
			}
		})
	}
	// Without a certificate there is no answer.
	config := own.ClientConfig(identity.FleetIndexHost)
	config.Certificates, config.GetClientCertificate = nil, func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	if resp, err := (&http.Client{Transport: transport}).Get("https://" + listener.Addr().String() + "/"); err == nil {
		_ = resp.Body.Close()
		t.Error("a client without a certificate was answered")
	}
}

// TestPortIsBounded has as many requests as are answered at a time.
func TestPortIsBounded(t *testing.T) {
	f := newFixture(t)
	for range requestsAtOnce {
		f.requests <- struct{}{}
	}
	if w := f.post(t, indexapi.SearchPath, indexapi.SearchRequest{Caller: jane}); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("got %d: %s", w.Code, w.Body)
	}
}

// TestBegunAnswerIsCutOff wants no end of an answer that is not whole.
func TestBegunAnswerIsCutOff(t *testing.T) {
	f := newFixture(t)
	for name, c := range map[string]struct {
		begin bool
		want  any
		code  int
	}{
		"before": {false, nil, http.StatusInternalServerError},
		"after":  {true, http.ErrAbortHandler, http.StatusOK},
	} {
		handler := f.answer(kindOther, func(_ context.Context, w http.ResponseWriter, _ *http.Request) error {
			if c.begin {
				_, _ = io.WriteString(w, "x") // a recorder takes it
			}
			return errors.New("the store broke")
		})
		w := httptest.NewRecorder()
		func() {
			defer func() {
				if got := recover(); got != c.want || w.Code != c.code {
					t.Errorf("%s: ended by %v with %d, want %v with %d", name, got, w.Code, c.want, c.code)
				}
			}()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
		}()
		if strings.Contains(w.Body.String(), "broke") {
			t.Errorf("%s: the answer is %s", name, w.Body)
		}
	}
}
