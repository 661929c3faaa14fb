package fleetindexer

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/status"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// everyAgent is the hub of tests that are not about which clusters are served.
type everyAgent struct{}

func (everyAgent) Served(string) error   { return nil }
func (everyAgent) Admit(pki.Agent) error { return nil }

// startAgent returns agents of which that of cluster1 answers with a handler.
func startAgent(t *testing.T, handler http.HandlerFunc) tunnelAgents {
	t.Helper()
	dir, hubCA, agentCA := t.TempDir(), pkitest.NewCA(t, "hub"), pkitest.NewCA(t, "agents")
	load := func(name string, ca *pki.CA, leaf pki.Leaf, bundle *pki.CA) *pki.Reloader {
		return pkitest.Load(t, pkitest.Issue(t, filepath.Join(dir, name), ca, leaf, bundle))
	}
	agent := load("agent", agentCA, pki.Leaf{CommonName: identity.AgentCommonName("cluster1"), Organizations: identity.AgentOrganizations("cluster1"),
		DNSNames: []string{identity.HandlerHost("cluster1")}, Server: true}, hubCA)
	config := agent.ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{"h2"}
	server := &http.Server{Handler: handler, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0)}
	if err := httprelay.ConfigureServer(server, 10); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, listener.Addr().String())
	}
	own := load("index", hubCA, pki.Leaf{CommonName: string(identity.RoleFleetIndex), Client: true}, agentCA)
	client := agentclient.New(agentclient.Options{Dial: dial, TLS: own.ClientConfig, Admission: everyAgent{}, Metrics: newMetrics(prometheus.NewRegistry()).agents()})
	t.Cleanup(func() {
		client.Close()
		_ = server.Close()
	})
	return tunnelAgents{client}
}

func TestTunnelAgents(t *testing.T) {
	agents := startAgent(t, func(w http.ResponseWriter, r *http.Request) {
		role, err := pki.PeerRole(*r.TLS)
		if err != nil || role != identity.RoleFleetIndex || r.Method != http.MethodPost || r.URL.Path != "/index" {
			t.Errorf("%s %s by %q, %v", r.Method, r.URL.Path, role, err)
		}
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "Impersonate-") || name == "Authorization" {
				t.Errorf("a request for rows has header %s", name)
			}
		}
		request, err := feed.ReadRequest(r.Body)
		if err != nil || len(request.Resources) != 1 {
			t.Errorf("asked for %+v, %v", request, err)
		}
		if request.Resources[0].Resource == nodes {
			status.Write(w, status.New(http.StatusForbidden, "noIndex").ErrStatus)
			return
		}
		if err := feed.NewWriter(w).Write(&feed.Message{Resource: pods, Version: "7"}); err != nil {
			t.Error(err)
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body, err := agents.open(ctx, "cluster1", &feed.Request{Resources: []feed.Known{{Resource: pods}}})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	reader := feed.NewReader(body)
	if m, err := reader.Read(); err != nil || m.Version != "7" {
		t.Errorf("got %+v, %v", m, err)
	}
	cancel()
	if m, err := reader.Read(); err == nil {
		t.Errorf("after the end: %+v", m)
	}
	_, err = agents.open(t.Context(), "cluster1", &feed.Request{Resources: []feed.Known{{Resource: nodes}}})
	var refused *refusedError
	if !errors.As(err, &refused) || refused.code != http.StatusForbidden || refused.message != "noIndex" {
		t.Errorf("a refusal is %v", err)
	}
	// Another cluster's name is not that of the certificate.
	if body, err := agents.open(t.Context(), "cluster2", &feed.Request{}); err == nil {
		_ = body.Close()
		t.Error("the agent of cluster1 answers for cluster2")
	}
}

// TestReview asks as a user, on the connection of the stream.
func TestReview(t *testing.T) {
	var of [2]string
	agents := startAgent(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/index" {
			of[0] = r.RemoteAddr
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		of[1] = r.RemoteAddr
		if r.Method != http.MethodPost || r.URL.Path != "/reviews" || r.Header.Get("X-Remote-User") != "jane" || r.Header.Get("X-Remote-Group") != "team" {
			t.Errorf("%s %s with %v", r.Method, r.URL.Path, r.Header)
		}
		var review feed.Review
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		if len(review.Questions) == 0 {
			status.Write(w, status.New(http.StatusForbidden, "noIndex").ErrStatus)
			return
		}
		if err := json.NewEncoder(w).Encode(feed.Decisions{Decisions: []feed.Decision{{Allowed: review.Questions[0].Namespace == "shop"}}}); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body, err := agents.open(ctx, "cluster1", &feed.Request{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	as := &user.DefaultInfo{Name: "jane", Groups: []string{"team"}}
	question := feed.Question{Resource: pods, Verb: "list", Namespace: "shop"}
	decisions, err := agents.review(t.Context(), "cluster1", as, &feed.Review{Questions: []feed.Question{question}})
	if err != nil || len(decisions) != 1 || !decisions[0].Allowed || of[0] != of[1] {
		t.Errorf("got %v, %v on connections %v", decisions, err, of)
	}
	if decisions, err = agents.review(t.Context(), "cluster1", as, &feed.Review{Questions: []feed.Question{question, question}}); err == nil {
		t.Errorf("one decision on two questions was taken: %v", decisions)
	}
	var refused *refusedError
	if _, err = agents.review(t.Context(), "cluster1", as, &feed.Review{}); !errors.As(err, &refused) || refused.code != http.StatusForbidden {
		t.Errorf("a refusal is %v", err)
	}
}
