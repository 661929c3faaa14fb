package apihandler

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// fixture is a handler in front of a fake kube-apiserver, and clients of it.
type fixture struct {
	url            string
	hubCA, agentCA *pki.CA
}

func start(t *testing.T, apiServer http.HandlerFunc, access ...Access) *fixture {
	t.Helper()
	upstream := httptest.NewUnstartedServer(apiServer)
	upstream.EnableHTTP2 = true
	upstream.StartTLS()
	t.Cleanup(upstream.Close)
	// The configuration holds a credential of the agent's own: it must never
	// be seen upstream.
	return startFor(t, &rest.Config{
		Host: upstream.URL, BearerToken: "the-agents-own-token",
		TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(upstream)},
	}, append(access, Access{})[0])
}

func startFor(t *testing.T, cfg *rest.Config, access Access) *fixture {
	t.Helper()
	return startWith(t, cfg, access, Services{}, dial.TCP{})
}

func startWith(t *testing.T, cfg *rest.Config, access Access, services Services, tcp dial.TCP) *fixture {
	t.Helper()
	f := &fixture{hubCA: pkitest.NewCA(t, "hub"), agentCA: pkitest.NewCA(t, "agents")}
	source := pkitest.NewReloader(t, f.agentCA, pki.Leaf{CommonName: identity.AgentCommonName("cluster1"), DNSNames: []string{identity.HandlerHost("cluster1")}, Server: true, Client: true}, f.hubCA)
	server, err := NewServer(cfg, tcp, source, services, access, Metrics{Registry: prometheus.NewRegistry(), Agent: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { server.Close(); <-done })
	f.url = "https://" + listener.Addr().String()
	return f
}

func pemOf(s *httptest.Server) []byte {
	return pemEncode(s.Certificate().Raw)
}

func (f *fixture) tls(t *testing.T, issuer *pki.CA, leaf pki.Leaf) *tls.Config {
	t.Helper()
	return pkitest.NewReloader(t, issuer, leaf, f.agentCA).ClientConfig(identity.HandlerHost("cluster1"))
}

func (f *fixture) proxyAPI(t *testing.T) *http.Client {
	t.Helper()
	config := f.tls(t, f.hubCA, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true})
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestRequestsArriveAsTheyAre(t *testing.T) {
	seen := make(chan *http.Request, 1)
	f := start(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Clone(r.Context())
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusTeapot)
	})
	req, err := http.NewRequest(http.MethodGet, f.url+"/api/v1/namespaces/a%2Fb/pods?labelSelector=a%3Db&x=/y//z&a=1;b=2&c=%zz", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer users-token", "Impersonate-User": "jane", "Audit-Id": "1",
		"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Host": "evil", "Forwarded": "for=1.2.3.4",
	} {
		req.Header.Set(name, value)
	}
	resp, err := f.proxyAPI(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusTeapot || resp.Header.Get("X-Answer") != "yes" || resp.ProtoMajor != 2 {
		t.Errorf("answer %d over %s, want the kube-apiserver's over HTTP/2", resp.StatusCode, resp.Proto)
	}
	got := <-seen
	if want := "/api/v1/namespaces/a%2Fb/pods?labelSelector=a%3Db&x=/y//z&a=1;b=2&c=%zz"; got.RequestURI != want {
		t.Errorf("arrived as %q, want %q", got.RequestURI, want)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer users-token", "Impersonate-User": "jane", "Audit-Id": "1",
		"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Host": "", "Forwarded": "",
	} {
		if value := got.Header.Get(name); value != want {
			t.Errorf("header %s arrived as %q, want %q", name, value, want)
		}
	}
	if got.ProtoMajor != 2 {
		t.Errorf("the kube-apiserver was spoken to in %s, want HTTP/2", got.Proto)
	}
}

// A request without a credential is anonymous, whatever it says besides.
func TestAgentNeverLendsItsCredential(t *testing.T) {
	seen := make(chan http.Header, 1)
	f := start(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Clone() })
	for name, headers := range map[string]http.Header{
		"nothing":               {},
		"connection-listed":     {"Connection": {"Authorization"}, "Authorization": {"Bearer x"}},
		"empty authorization":   {"Authorization": {""}},
		"impersonation alone":   {"Impersonate-User": {"system:admin"}},
		"lower-case credential": {"authorization": {}},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequest(http.MethodGet, f.url+"/api", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header = headers
			client := f.proxyAPI(t)
			// HTTP/1.1, because HTTP/2 has no Connection header to try.
			client.Transport.(*http.Transport).TLSClientConfig.NextProtos = []string{"http/1.1"}
			client.Transport.(*http.Transport).ForceAttemptHTTP2 = false
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusBadRequest {
				return // refused before it went anywhere
			}
			for _, value := range (<-seen).Values("Authorization") {
				if strings.Contains(value, "agents-own") {
					t.Errorf("the agent's own credential went out: %q", value)
				}
			}
		})
	}
}

func TestOnlyTheProxyAPIIsAnswered(t *testing.T) {
	f := start(t, func(http.ResponseWriter, *http.Request) { t.Error("a request got through") })
	for name, test := range map[string]struct {
		issuer *pki.CA
		leaf   pki.Leaf
	}{
		"client role":            {f.hubCA, pki.Leaf{CommonName: string(identity.RoleClient), Client: true}},
		"no role":                {f.hubCA, pki.Leaf{CommonName: "somebody", Client: true}},
		"role as organization":   {f.hubCA, pki.Leaf{CommonName: "somebody", Organizations: []string{string(identity.RoleProxyAPI)}, Client: true}},
		"server certificate":     {f.hubCA, pki.Leaf{CommonName: string(identity.RoleProxyAPI), DNSNames: []string{"x"}, Server: true}},
		"role of the agent's CA": {f.agentCA, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true}},
		"another cluster":        {f.agentCA, pki.Leaf{CommonName: identity.AgentCommonName("cluster2"), Client: true, Server: true}},
	} {
		t.Run(name, func(t *testing.T) {
			transport := &http.Transport{TLSClientConfig: f.tls(t, test.issuer, test.leaf)}
			defer transport.CloseIdleConnections()
			resp, err := (&http.Client{Transport: transport}).Get(f.url + "/api")
			if err != nil {
				return // refused in the handshake
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusForbidden {
				t.Errorf("answered %d, want 403 or no handshake at all", resp.StatusCode)
			}
		})
	}
}

// dialHTTP1 connects as the proxy API does for upgrades, for as long as the test runs.
func (f *fixture) dialHTTP1(t *testing.T) *tls.Conn {
	t.Helper()
	config := f.tls(t, f.hubCA, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true})
	config.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(f.url, "https://"), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestUpgrade(t *testing.T) {
	f := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			t.Errorf("an upgrade arrived over %s, want HTTP/1.1", r.Proto)
		}
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, buf)
	})
	conn := f.dialHTTP1(t)
	fmt.Fprint(conn, "GET /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answer %v, %v; want 101", resp, err)
	}
	fmt.Fprintln(conn, "hello")
	if line, err := reader.ReadString('\n'); line != "hello\n" {
		t.Errorf("echo gave %q, %v, want \"hello\\n\"", line, err)
	}
}

// An answer other than 101 to an upgrade leaves nothing open that a client could
// write through.
func TestRefusedUpgradeEndsThere(t *testing.T) {
	var requests int
	f := start(t, func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.WriteHeader(http.StatusForbidden)
	})
	conn := f.dialHTTP1(t)
	reader := bufio.NewReader(conn)
	for range 2 {
		fmt.Fprint(conn, "GET /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			return // closed, which is fine too
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Fatalf("answer %d, want 403 again", resp.StatusCode)
		}
	}
}

// odd answers with the status that a request names.
func odd(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 %s Odd\r\nContent-Length: 0\r\n\r\n", r.URL.Query().Get("code"))
	}
}

// TestUnaskedAnswers has a kube-apiserver answer with what is no status, or change
// the protocol of a request that did not ask for it.
func TestUnaskedAnswers(t *testing.T) {
	upstream := httptest.NewTLSServer(odd(t))
	t.Cleanup(upstream.Close)
	f := startFor(t, &rest.Config{Host: upstream.URL, TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(upstream)}}, Access{})
	client := f.proxyAPI(t)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, code := range []string{"000", "099", "101"} {
			req, err := http.NewRequest(method, f.url+"/api?code="+code, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Errorf("%s answered with %s: %v", method, code, err)
				continue
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusBadGateway {
				t.Errorf("%s answered with %s: %d, want 502", method, code, resp.StatusCode)
			}
		}
	}
}

func TestUnreachableIs502(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	f := startFor(t, &rest.Config{Host: "https://" + address}, Access{})
	resp, err := f.proxyAPI(t).Get(f.url + "/api")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var status metav1.Status
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil || resp.StatusCode != http.StatusBadGateway || !strings.Contains(status.Message, "kube-apiserver") {
		t.Errorf("answer %d, %+v, %v; want 502 and a Status that names the kube-apiserver", resp.StatusCode, status, err)
	}
}

// A watch is passed on as it comes, and ends upstream when the client leaves.
func TestStreamsAreFlushedAndCancelled(t *testing.T) {
	ended := make(chan struct{})
	f := start(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "one")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(ended)
	})
	resp, err := f.proxyAPI(t).Get(f.url + "/watch")
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "one\n" {
		t.Errorf("first line %q, %v, want \"one\\n\"", line, err)
	}
	resp.Body.Close()
	<-ended
}
