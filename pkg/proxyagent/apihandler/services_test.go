package apihandler

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// cluster stands for DNS and network of a managed cluster.
type cluster struct {
	names   map[string][]string // host to addresses
	ports   map[string][]uint16 // SRV name to ports
	backend string              // where every connection really goes

	mu       sync.Mutex
	dialed   []string
	resolved int
	// after is called when a name was resolved.
	after func()
}

func (c *cluster) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resolved++
	var out []netip.Addr
	for _, address := range c.names[host] {
		out = append(out, netip.MustParseAddr(address))
	}
	if c.after != nil {
		c.after()
	}
	if out == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return out, nil
}

func (c *cluster) LookupSRV(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
	if service != "" || proto != "" {
		name = "_" + service + "._" + proto + "." + name
	}
	var out []*net.SRV
	for _, port := range c.ports[name] {
		out = append(out, &net.SRV{Target: name, Port: port})
	}
	if out == nil {
		return "", nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return name, out, nil
}

func (c *cluster) connect(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	c.dialed = append(c.dialed, address)
	c.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, network, c.backend)
}

// startServices serves list in front of a Service that says what it sees.
func startServices(t *testing.T, c *cluster, list agentapi.ExposedServices, service http.HandlerFunc) *httptest.Server {
	t.Helper()
	backend := httptest.NewServer(service)
	t.Cleanup(backend.Close)
	c.backend = backend.Listener.Addr().String()
	proxy := Services{Exposed: func() agentapi.ExposedServices { return list }, Resolver: c, Roots: pki.NewReloader(pki.Files{})}.handler()
	proxy.dialer.connect = c.connect
	kubeAPIServer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "kube-apiserver") })
	front := httptest.NewServer(byTarget(proxy, kubeAPIServer))
	t.Cleanup(front.Close)
	return front
}

func askService(t *testing.T, front *httptest.Server, path string, header http.Header) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func wants(proto, namespace, service, port string) http.Header {
	header := http.Header{}
	agentapi.SetService(header, agentapi.Service{Protocol: proto, Namespace: namespace, Service: service, Port: port})
	return header
}

func TestServices(t *testing.T) {
	c := &cluster{
		names: map[string][]string{"web.default.svc": {"10.96.0.10"}, "two.default.svc": {"10.96.0.11"}},
		ports: map[string][]uint16{"_http._tcp.web.default.svc": {8080}, "web.default.svc": {8080}, "two.default.svc": {1, 2}},
	}
	front := startServices(t, c, agentapi.ExposedServices{{Namespace: "default", Service: "web"}, {Namespace: "default", Service: "two"}},
		func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s", r.Host, r.RequestURI) })
	for _, test := range []struct {
		service, port string
		code          int
		want          string
	}{
		{"web", "8000", 200, "web.default.svc:8000 /a%2Fb/?x=%20&;y"},
		{"web", "http", 200, "web.default.svc:8080 /a%2Fb/?x=%20&;y"},
		{"web", "", 200, "web.default.svc:8080 /a%2Fb/?x=%20&;y"},
		{"web", "other", 400, "give its number"},
		{"two", "", 400, "name one of them"},
	} {
		code, body := askService(t, front, "/a%2Fb/?x=%20&;y", wants("http", "default", test.service, test.port))
		if code != test.code || !strings.Contains(body, test.want) {
			t.Errorf("%s:%s: %d %q, want %d %q", test.service, test.port, code, body, test.code, test.want)
		}
	}
	if diff := cmp.Diff([]string{"10.96.0.10:8000", "10.96.0.10:8080"}, slices.Compact(c.dialed)); diff != "" {
		t.Errorf("dialed (-want +got):\n%s", diff)
	}
	if code, body := askService(t, front, "/version", http.Header{}); code != 200 || body != "kube-apiserver" {
		t.Errorf("a request for no Service: %d %q, want 200 of the kube-apiserver", code, body)
	}
}

// TestServicesDenied is everything that must not get as far as a connection.
func TestServicesDenied(t *testing.T) {
	c := &cluster{names: map[string][]string{
		"metadata.default.svc": {"169.254.169.254"}, "local.default.svc": {"127.0.0.1"}, "six.default.svc": {"::1"},
		"mapped.default.svc": {"::ffff:127.0.0.1"}, "mixed.default.svc": {"10.96.0.10", "127.0.0.1"}, "hidden.default.svc": {"10.96.0.12"},
	}}
	var list agentapi.ExposedServices
	for _, name := range []string{"metadata", "local", "six", "mapped", "mixed"} {
		list = append(list, agentapi.ExposedService{Namespace: "default", Service: name})
	}
	front := startServices(t, c, list, func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") })
	for _, test := range []struct {
		header http.Header
		code   int
		want   string
	}{
		{wants("http", "default", "hidden", "80"), 403, "does not expose"},
		{wants("http", "default", "metadata", "80"), 403, "link-local"},
		{wants("http", "default", "local", "80"), 403, "loopback"},
		{wants("http", "default", "six", "80"), 403, "loopback"},
		{wants("http", "default", "mapped", "80"), 403, "loopback"},
		{wants("http", "default", "mixed", "80"), 403, "loopback"},
		{wants("unix", "default", "local", "80"), 400, "protocol"},
		{wants("udp", "default", "local", "80"), 400, "protocol"},
		{wants("", "default", "local", "80"), 400, "no protocol"},
		{wants("tcp", "default", "local", "80"), 400, "CONNECT"},
		{wants("http", "default", "169.254.169.254/?", "80"), 400, "name of a Service"},
		{wants("http", "default", "169.254.169.254", "80"), 400, "name of a Service"},
		{wants("http", "default", "LOCAL", "80"), 400, "name of a Service"},
		{wants("http", "default", "local", "0"), 400, "1 to 65535"},
		{wants("http", "../x", "local", "80"), 400, "name of a namespace"},
		{http.Header{"Cluster-Proxy-Service": {"local"}, "Cluster-Proxy-Namespace": {"default"}}, 400, "no protocol"},
		{http.Header{"cluster_proxy_service": {"hidden"}}, 400, "not one of those"},
		{http.Header{"Cluster-Proxy-Proto": {"http"}, "Cluster-Proxy-Namespace": {"default"}, "Cluster-Proxy-Service": {"local", "hidden"}}, 400, "2 times"},
	} {
		if code, body := askService(t, front, "/", test.header); code != test.code || !strings.Contains(body, test.want) {
			t.Errorf("%v: %d %q, want %d and %q", test.header, code, body, test.code, test.want)
		}
	}
	if len(c.dialed) != 0 {
		t.Errorf("dialed %q, want nothing", c.dialed)
	}
}

// TestServiceNameThatChanges has DNS answer with another address as soon as it
// was asked: what is dialed must be what was checked.
func TestServiceNameThatChanges(t *testing.T) {
	c := &cluster{names: map[string][]string{"web.default.svc": {"10.96.0.10"}}}
	c.after = func() { c.names["web.default.svc"] = []string{"127.0.0.1"} }
	front := startServices(t, c, agentapi.ExposedServices{{Namespace: "default", Service: "web"}}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // the next request has to dial again
	})
	if code, body := askService(t, front, "/", wants("http", "default", "web", "80")); code != 200 {
		t.Errorf("answered %d %q, want 200", code, body)
	}
	if code, body := askService(t, front, "/", wants("http", "default", "web", "80")); code != 403 || !strings.Contains(body, "loopback") {
		t.Errorf("after the name has changed: %d %q", code, body)
	}
	if diff := cmp.Diff([]string{"10.96.0.10:80"}, c.dialed); diff != "" || c.resolved != 2 {
		t.Errorf("resolved %d times, dialed (-want +got):\n%s", c.resolved, diff)
	}
}

// TestLoginsOfServices wants the agent's own list to say whether a Service gets a
// login, whatever the hub says, and no other credential to arrive with it.
func TestLoginsOfServices(t *testing.T) {
	seen := make(chan string, 1)
	front := startServices(t, &cluster{names: map[string][]string{"grafana.default.svc": {"10.96.0.10"}, "web.default.svc": {"10.96.0.11"}}}, agentapi.ExposedServices{
		{Namespace: "default", Service: "grafana", ForwardAuthorization: true}, {Namespace: "default", Service: "web"},
		// An agent's list is about its own cluster: it gets no entries of this form.
		{Namespace: "default", Service: "web", ForwardAuthorization: true, Clusters: []string{"cluster1"}},
	}, func(_ http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("Authorization") + r.Header.Get("Cluster-Proxy-Authorization")
	})
	for _, test := range []struct {
		service string
		logins  []string
		user    string
		code    int
		want    string
	}{
		{"grafana", []string{"Basic YTpi"}, "jane", 200, "Basic YTpi"},
		{"grafana", []string{"Basic YTpi"}, "", 200, "Basic YTpi"},
		{"grafana", nil, "jane", 200, ""},
		{"grafana", nil, "", 200, "Bearer managed"},
		{"grafana", []string{"NTLM YTpi"}, "jane", 400, ""},
		{"grafana", []string{"negotiate YTpi"}, "jane", 400, ""},
		{"grafana", []string{"Basic YTpi", "Basic YTpj"}, "jane", 400, ""},
		{"web", []string{"Basic YTpi"}, "jane", 400, ""},
	} {
		header := wants("http", "default", test.service, "80")
		header.Set("Authorization", "Bearer managed")
		if test.user != "" {
			header.Set("X-Remote-User", test.user)
		}
		if test.logins != nil {
			header["Cluster-Proxy-Authorization"] = test.logins
		}
		code, body := askService(t, front, "/", header)
		if code != test.code {
			t.Errorf("%s with %q: %d %q, want %d", test.service, test.logins, code, body, test.code)
			continue
		}
		if code != http.StatusOK {
			continue
		}
		if got := <-seen; got != test.want {
			t.Errorf("%s with %q of %q sees %q, want %q", test.service, test.logins, test.user, got, test.want)
		}
	}
	if len(seen) > 0 {
		t.Errorf("a refused request arrived with %q", <-seen)
	}
}

// TestUnaskedAnswersOfServices has a Service answer as TestUnaskedAnswers a
// kube-apiserver.
func TestUnaskedAnswersOfServices(t *testing.T) {
	front := startServices(t, &cluster{names: map[string][]string{"web.default.svc": {"10.96.0.10"}}}, agentapi.ExposedServices{{Namespace: "default", Service: "web"}}, odd(t))
	for _, code := range []string{"000", "099", "101"} {
		if got, body := askService(t, front, "/?code="+code, wants("http", "default", "web", "80")); got != http.StatusBadGateway {
			t.Errorf("answered with %s: %d %q, want 502", code, got, body)
		}
	}
}

// TestServiceSeesNoIdentity checks what of a user's identity a Service learns:
// a token of their own that is not the hub's, if they sent one, and nothing else.
func TestServiceSeesNoIdentity(t *testing.T) {
	seen := make(chan http.Header, 1)
	front := startServices(t, &cluster{names: map[string][]string{"web.default.svc": {"10.96.0.10"}}},
		agentapi.ExposedServices{{Namespace: "default", Service: "web"}}, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header })
	header := wants("http", "default", "web", "80")
	header.Set("Authorization", "Bearer x")
	header.Set("X-Forwarded-For", "192.0.2.1")
	header.Set("X-Forwarded-Host", "evil")
	header.Set("Audit-ID", "id")
	want := http.Header{"Authorization": {"Bearer x"}, "X-Forwarded-For": {"192.0.2.1"}, "Audit-Id": {"id"}, "Accept-Encoding": {"gzip"}, "User-Agent": {"Go-http-client/1.1"}}
	ask := func(header http.Header) {
		if code, body := askService(t, front, "/", header); code != 200 {
			t.Fatalf("%v: %d %q, want 200", header, code, body)
		}
	}
	ask(header)
	if diff := cmp.Diff(want, <-seen); diff != "" {
		t.Errorf("pass-through (-want +got):\n%s", diff)
	}
	for _, name := range []string{"X-Remote-User", "x_remote_user", "X-Remote-Extra-A"} {
		asserted := header.Clone()
		asserted[name] = []string{"alice"}
		asserted["Impersonate-User"] = []string{"bob"}
		asserted["impersonate_group"] = []string{"g"}
		ask(asserted)
		delete(want, "Authorization")
		if diff := cmp.Diff(want, <-seen); diff != "" {
			t.Errorf("asserted by %s (-want +got):\n%s", name, diff)
		}
	}
}
