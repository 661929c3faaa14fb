package proxyapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/authn"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

func TestHostEndpoint(t *testing.T) {
	w := start(t, func(o *Options) { o.Domain = "clusters.example.org" })
	w.api.User("managed", "jane")
	w.api.Allow("jane * clusters/proxy *")
	seen := make(chan *http.Request, 1)
	w.agent("cluster1", keeping(seen), "cluster1")
	client := w.client()
	for host, want := range map[string]struct {
		code int
		uri  string
	}{
		"cluster1.clusters.example.org":        {200, "/cluster2/x?y=z"},
		"Cluster1.Clusters.example.org.:9092":  {200, "/cluster2/x?y=z"},
		"nowhere.clusters.example.org":         {404, ""},
		"-.clusters.example.org":               {404, ""},
		"clusters.example.org":                 {503, ""}, // a path: cluster2 has no agent
		"cluster1.clusters.example.org.evil.x": {503, ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/cluster2/x?y=z", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("Authorization", "Bearer managed")
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want.code {
			t.Errorf("host %s: %d, want %d", host, resp.StatusCode, want.code)
		}
		if want.code == 200 {
			if got := (<-seen).RequestURI; got != want.uri {
				t.Errorf("host %s: %q arrived, want %q", host, got, want.uri)
			}
		}
	}
	// At a cluster's own host even probes are the cluster's.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "cluster1.clusters.example.org"
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := (<-seen).RequestURI; got != "/readyz" {
		t.Errorf("%q arrived, want /readyz", got)
	}
}

func TestServices(t *testing.T) {
	w := start(t)
	w.api.User("hub-token", "jane")
	w.api.Allow("jane * clusters/proxy cluster1", "jane create clusters/stream cluster1")
	w.api.SetExposed(map[string]string{"a": "[{namespace: ns, service: web, port: http}, {namespace: ns, service: any}]", "b": "[{namespace: ns, service: plain, port: '80', protocol: http}]"})
	seen := make(chan *http.Request, 1)
	w.agent("cluster1", keeping(seen), "cluster1")
	client := w.client()
	const prefix = "/cluster1/api/v1/namespaces/ns/services/"
	eventually(t, func() bool {
		resp, _ := get(t, client, w.url+prefix+"any/proxy-service/", nil)
		if resp.StatusCode == 200 {
			<-seen
		}
		return resp.StatusCode == 200
	})
	for service, want := range map[string]string{
		"any/proxy-service/a%2Fb//c?d=/": "https ns any  /a%2Fb//c?d=/", "http:any:/proxy-service/": "http ns any  /", "any:8443/proxy-service/": "https ns any 8443 /",
		"https:web:http/proxy-service/": "https ns web http /", "http:plain:80/proxy-service/": "http ns plain 80 /", ":any:/proxy-service/": "https ns any  /",
		"https:plain:80/proxy-service/": "403", "web/proxy-service/": "403", "web:80/proxy-service/": "403", "other:80/proxy-service/": "403",
		"ftp:any:21/proxy-service/": "400", "any:0/proxy-service/": "400", "any:080/proxy-service/": "400", "any.x/proxy-service/": "400", "%61ny/proxy-service/": "400",
		"a:b:c:d/proxy-service/": "400", "-any/proxy-service/": "400",
	} {
		for _, token := range []string{"hub-token", "managed"} {
			resp, body := get(t, client, w.url+prefix+service, http.Header{"Authorization": {"Bearer " + token}})
			got := fmt.Sprint(resp.StatusCode)
			if resp.StatusCode == 200 {
				r := <-seen
				got = strings.Join([]string{r.Header.Get("Cluster-Proxy-Proto"), r.Header.Get("Cluster-Proxy-Namespace"), r.Header.Get("Cluster-Proxy-Service"), r.Header.Get("Cluster-Proxy-Port"), r.RequestURI}, " ")
				if asserted := r.Header.Get("X-Remote-User"); (asserted == "jane") != (token == "hub-token") || (r.Header.Get("Authorization") != "") != (token == "managed") {
					t.Errorf("%s with %s: user %q, Authorization %q", service, token, asserted, r.Header.Get("Authorization"))
				}
			}
			if got != want {
				t.Errorf("%s: %s, want %s (%s)", service, got, want, body)
			}
		}
	}
	if resp, _ := get(t, client, w.url+prefix+"any/proxy-service/", http.Header{}); resp.StatusCode != 401 {
		t.Errorf("anonymous: %d, want 401", resp.StatusCode)
	}
	if resp, _ := get(t, client, w.url+prefix+"any/proxy-service", http.Header{}); resp.StatusCode != 200 || (<-seen).RequestURI != prefix[len("/cluster1"):]+"any/proxy-service" {
		t.Errorf("without the slash: %d, want it to go to the kube-apiserver", resp.StatusCode)
	}
}

// eventually waits for something that comes by itself. It asks less often than
// callers with unverified credentials may.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	wait.Poll{Every: 2 * time.Second / authn.SourceRate, For: 20 * time.Second}.Until(t, "it comes", done)
}

func TestConnect(t *testing.T) {
	w := start(t)
	w.api.User("hub-token", "jane")
	w.api.User("viewer", "vera")
	w.api.Allow("jane create clusters/proxy cluster1", "jane create clusters/stream cluster1", "vera get clusters/proxy cluster1", "devs * clusters/proxy *", "devs create clusters/stream *")
	managed := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprint(rw, r.Header.Get("Authorization"), r.Header.Get("Proxy-Authorization"), r.Header.Get("X-Remote-User"))
	}))
	t.Cleanup(managed.Close)
	w.hub.Forward("cluster1:443", managed.Listener.Addr().String())
	config := managed.Client().Transport.(*http.Transport).TLSClientConfig
	config.ServerName = "example.com"
	through := func(credentials *url.Userinfo) *http.Client {
		proxy, err := url.Parse(w.url)
		if err != nil {
			t.Fatal(err)
		}
		proxy.User = credentials
		proxy.Scheme = "http" // the TLS to the proxy API is dialed below
		transport := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: config, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&tls.Dialer{Config: w.client().Transport.(*http.Transport).TLSClientConfig.Clone()}).DialContext(ctx, network, address)
		}}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	resp, body := get(t, through(url.UserPassword("anybody", "hub-token")), "https://cluster1/version", http.Header{"Authorization": {"Bearer for-the-cluster"}})
	if resp.StatusCode != 200 || body != "Bearer for-the-cluster" {
		t.Errorf("%d, the cluster saw %q; want 200 and the token for the cluster", resp.StatusCode, body)
	}
	for _, tc := range []struct{ target, header, want string }{
		{"cluster1:443", basic("x", "viewer"), "403"}, {"cluster1:443", basic("x", "of-a-cluster"), "407"}, {"cluster1:443", "", "407"},
		{"cluster1:443", "Bearer hub-token", "200"}, {"cluster1:22", basic("x", "hub-token"), "400"}, {"cluster2:443", basic("x", "hub-token"), "403"},
		{"127.0.0.1:443", basic("x", "hub-token"), "403"}, {"cluster1:0443", basic("x", "hub-token"), "400"}, {"CLUSTER1:443", basic("x", "hub-token"), "404"},
		{"kubernetes.default.svc.cluster1:443", basic("x", "hub-token"), "403"}, {"Web.ns.svc.cluster1:5432", basic("x", "hub-token"), "400"}, {"169.254.169.254:80", basic("x", "hub-token"), "400"},
	} {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(w.url, "https://"), w.client().Transport.(*http.Transport).TLSClientConfig)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", tc.target, tc.target)
		if tc.header != "" {
			fmt.Fprintf(conn, "Proxy-Authorization: %s\r\nAuthorization: Bearer hub-token\r\n", tc.header)
		}
		fmt.Fprint(conn, "\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(resp.StatusCode); got != tc.want || (got == "407") != (resp.Header.Get("Proxy-Authenticate") != "") {
			t.Errorf("%s with %q: %s, want %s", tc.target, tc.header, got, tc.want)
		}
		conn.Close()
	}
}

// TestConnectService has a connection to a Service that is nobody else's business,
// with the end of each direction on its own, and the agent's reasons against one.
func TestConnectService(t *testing.T) {
	w := start(t)
	w.api.User("hub-token", "jane")
	w.api.User("no-streams", "nora")
	w.api.Allow("jane create clusters/proxy cluster1", "jane create clusters/stream cluster1", "nora create clusters/proxy cluster1")
	w.api.SetExposed(map[string]string{"a": "[{namespace: ns, service: db, protocol: tcp}, {namespace: ns, service: web, protocol: http}]"})
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		s, err := agentapi.ServiceOf(r.Header)
		if r.Method != http.MethodConnect || err != nil || r.Header.Get("X-Remote-User") != "jane" || r.Header.Get("Audit-Id") == "" || r.Header.Get("Authorization")+r.Header.Get("Proxy-Authorization") != "" {
			t.Errorf("the agent got %s %v, %v", r.Method, r.Header, err)
		}
		if s.Port == "1" {
			status.Write(rw, status.New(http.StatusForbidden, "the owner says no").ErrStatus)
			return
		}
		conn, err := connect.Accept(rw, r)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, s)
		sent, err := io.ReadAll(conn) // until the client's end
		fmt.Fprintf(conn, " %s %v", sent, err)
	}), "cluster1")
	ask := func(target, token string) (net.Conn, io.ReadWriteCloser, error) {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(w.url, "https://"), w.client().Transport.(*http.Transport).TLSClientConfig)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		there, err := connect.Ask(t.Context(), conn, target, http.Header{"Proxy-Authorization": {basic("x", token)}})
		return conn, there, err
	}
	eventually(t, func() bool {
		conn, _, err := ask("db.ns.svc.cluster1:1", "hub-token")
		conn.Close()
		var refusal *connect.Refusal
		return errors.As(err, &refusal) && strings.Contains(string(refusal.Body), "the owner says no")
	})
	_, there, err := ask("db.ns.svc.cluster1:5432", "hub-token")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(there, "select 1")
	if err := there.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(there); err != nil || string(got) != `tcp Service ns/db port "5432" select 1 <nil>` {
		t.Errorf("the Service says %q, %v; want its own name and what was sent", got, err)
	}
	for _, tc := range []struct {
		target, token string
		code          int
	}{
		{"web.ns.svc.cluster1:80", "hub-token", 403}, {"db.other.svc.cluster1:5432", "hub-token", 403}, {"db.ns.svc.cluster2:5432", "hub-token", 403},
		{"db.ns.svc.cluster1:5432", "no-streams", 403}, {"db.ns.svc.cluster1:5432", "of-a-cluster", 407},
	} {
		_, _, err := ask(tc.target, tc.token)
		if refusal := new(connect.Refusal); !errors.As(err, &refusal) || refusal.Code != tc.code {
			t.Errorf("%s with %s: %v, want %d", tc.target, tc.token, err, tc.code)
		}
	}
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func TestRedirectsStay(t *testing.T) {
	w := start(t)
	w.api.SetExposed(map[string]string{"a": "[{namespace: ns, service: s}]"})
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Location", r.Header.Get("Redirect-To"))
		rw.WriteHeader(http.StatusTemporaryRedirect)
	}), "cluster1")
	client := w.client("http/1.1")
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	const services = "/cluster1/api/v1/namespaces/ns/services/"
	const service = services + "s/proxy-service"
	host := strings.TrimPrefix(w.url, "https://")
	eventually(t, func() bool {
		resp, _ := get(t, client, w.url+service+"/", http.Header{"Authorization": {"Bearer x"}})
		return resp.StatusCode == 307
	})
	for _, tc := range []struct{ path, to, want string }{
		{"/cluster1/a/b", "/c?d", "/cluster1/c?d"},
		{"/cluster1/a/b", "c", "/cluster1/a/c"},
		{"/cluster1/a/b", "../../../../cluster2/x", "/cluster1/cluster2/x"},
		{"/cluster1/a/b", "/../cluster2/x", "/cluster1/cluster2/x"},
		{"/cluster1/a/b", "//evil.example/x", ""},
		{"/cluster1/a/b", "https://evil.example/x", ""},
		{"/cluster1/a/b", "https://" + host + "/cluster2/x", ""},
		{"/cluster1/a/b", "https:///cluster2/x", ""},
		{"/cluster1/a/b", "https:opaque", ""},
		{"/cluster1/a/b", "\\\\evil.example", "/cluster1/a/%5C%5Cevil.example"},
		{service + "/a", "/login", service + "/login"},
		{service + "/a", "https://login.example/x", "https://login.example/x"},
		{service + "/a", "https://" + host + "/cluster2/x", ""},
		{service + "/a", "https://127.0.0.1:443/cluster2/x", ""}, // the same host, spelled with another port
		{service + "/a", "https:/cluster2/x", ""},
		{service + "/a", "https:x", ""},
		{"/cluster1/a/b", "/%2e%2e/cluster2/x", ""},
		// A Service that knows itself by the agent's Host header, in the four forms that servers use.
		{service + "/a", "https://s.ns.svc:443/login?x=/y", service + "/login?x=/y"},
		{service + "/a", "https://S.ns.svc./login", service + "/login"},
		{service + "/a", "https://s.ns.svc", service + "/"},
		{service + "/a", "//s.ns.svc/login#x", service + "/login#x"},
		{service + "/a/b", "login", service + "/a/login"},
		{service + "/a", "http://s.ns.svc/login", services + "http:s:80/proxy-service/login"},
		{services + "http:s:8080/proxy-service/a", "http://s.ns.svc:8080/a/", services + "http:s:8080/proxy-service/a/"},
		{services + "http:s:8080/proxy-service/a", "http://s.ns.svc/a/", services + "http:s:8080/proxy-service/a/"}, // nginx' $host
		{services + "http:s:8080/proxy-service/a", "http://s.ns.svc:9090/a", services + "http:s:9090/proxy-service/a"},
		{services + "http:s:8080/proxy-service/a", "https://s.ns.svc/a", services + "https:s:443/proxy-service/a"},
		{services + "http:s:web/proxy-service/a", "http://s.ns.svc:8080/b", services + "http:s:web/proxy-service/b"},
		{service + "/a", "https://s.ns.svc//evil.example/x", ""},
		{service + "/a", "https://s.ns.svc/../../cluster2/x", service + "/cluster2/x"},
		{service + "/a", "https://s.ns.svc/%2e%2e/cluster2/x", ""},
		{service + "/a", "https://s.ns.svc.evil.example/x", "https://s.ns.svc.evil.example/x"}, // elsewhere, as any
		{service + "/a", "https://u:p@s.ns.svc/x", "https://u:p@s.ns.svc/x"},
		{service + "/a", "//login.example/x", "//login.example/x"},
		{service + "/a", "//" + host + "/cluster2/x", ""},
		{service + "/a", "////login.example/x", ""},
		{"/cluster1/a/b", "https://s.ns.svc/x", ""},
	} {
		resp, _ := get(t, client, w.url+tc.path, http.Header{"Authorization": {"Bearer x"}, "Redirect-To": {tc.to}})
		if got := resp.Header.Get("Location"); got != tc.want || (resp.StatusCode == 502) != (tc.want == "") {
			t.Errorf("%s redirected to %q: %d %q, want %q", tc.path, tc.to, resp.StatusCode, got, tc.want)
		}
	}
}

// TestOnePlaceToGo has a cluster answer with no place to go, one, or several, of
// which clients disagree which they follow.
func TestOnePlaceToGo(t *testing.T) {
	w := start(t)
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header()["Location"] = r.Header["Redirect-To"]
		code, _ := strconv.Atoi(r.Header.Get("Code"))
		rw.WriteHeader(code)
	}), "cluster1")
	client := w.client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	const evil = "https://evil.example/"
	for _, tc := range []struct {
		code      int
		locations []string
		want      int
		location  string
	}{
		{code: 302, locations: []string{"", evil}, want: 502},
		{code: 302, locations: []string{evil, ""}, want: 502},
		{code: 307, locations: []string{"/a", "/a"}, want: 502},
		{code: 302, locations: []string{"/a", evil}, want: 502},
		{code: 302, locations: []string{""}, want: 302, location: "/cluster1/x"}, // what was asked for
		{code: 201, locations: []string{"", evil}, want: 502},
		{code: 201, locations: []string{evil}, want: 502},
		{code: 201, locations: []string{"/a"}, want: 201, location: "/cluster1/a"},
		{code: 201, want: 201},
		{code: 304, want: 304},
		{code: 300, want: 300},
	} {
		resp, _ := get(t, client, w.url+"/cluster1/x", http.Header{"Authorization": {"Bearer x"}, "Code": {strconv.Itoa(tc.code)}, "Redirect-To": tc.locations})
		if got := strings.Join(resp.Header["Location"], " "); resp.StatusCode != tc.want || got != tc.location {
			t.Errorf("%d to %q became %d to %q, want %d to %q", tc.code, tc.locations, resp.StatusCode, got, tc.want, tc.location)
		}
	}
}

func TestLimits(t *testing.T) {
	w := start(t, func(o *Options) { o.RequestsPerUser, o.StreamsPerUser, o.RequestsPerCluster = 1, 1, 2 })
	for _, name := range []string{"jane", "bob", "eve"} {
		w.api.User(name, name)
	}
	w.api.Allow("* * clusters/proxy cluster1")
	arrived, release := make(chan struct{}), make(chan struct{})
	w.agent("cluster1", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" || r.URL.Query().Has("watch") {
			arrived <- struct{}{}
			<-release
		}
	}), "cluster1")
	client := w.client()
	as := func(user string) http.Header { return http.Header{"Authorization": {"Bearer " + user}} }
	var waiting sync.WaitGroup
	open := func(user, path string) {
		waiting.Go(func() { get(t, client, w.url+path, as(user)) })
		<-arrived
	}
	open("jane", "/cluster1/wait")
	resp, body := get(t, client, w.url+"/cluster1/version", as("jane"))
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, `user \"jane\"`) {
		t.Errorf("jane's second: %d %s, want 429 that names jane", resp.StatusCode, body)
	}
	open("jane", "/cluster1/api/v1/pods?watch=1")
	if resp, _ := get(t, client, w.url+"/cluster1/api/v1/pods?watch=1", as("jane")); resp.StatusCode != 429 {
		t.Errorf("jane's second watch: %d, want 429", resp.StatusCode)
	}
	open("bob", "/cluster1/wait")
	if resp, body := get(t, client, w.url+"/cluster1/version", as("eve")); resp.StatusCode != 429 || !strings.Contains(body, "cluster") {
		t.Errorf("the cluster's third: %d %s, want 429 for the cluster", resp.StatusCode, body)
	}
	close(release)
	waiting.Wait()
	if resp, _ := get(t, client, w.url+"/cluster1/version", as("jane")); resp.StatusCode != 200 {
		t.Errorf("after all ended: %d, want 200", resp.StatusCode)
	}
}

func TestAuditLog(t *testing.T) {
	log, set := withAuditLog(t)
	w := start(t, set)
	w.api.User("hub-token", "system:serviceaccount:a:b", "devs")
	w.api.User("viewer", "vera")
	w.api.Allow("system:serviceaccount:a:b list clusters/proxy cluster1")
	w.agent("cluster1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "cluster1")
	client := w.client()
	for token, id := range map[string]string{"hub-token": "allowed", "viewer": "denied", "of-a-cluster": "passed"} {
		get(t, client, w.url+"/cluster1/api/v1/namespaces/n/pods?limit=5", http.Header{"Authorization": {"Bearer " + token}, "Audit-Id": {id}})
	}
	found := map[string]string{}
	for _, e := range w.eventsOf(t, log) {
		found[string(e.AuditID)] = fmt.Sprintf("%s %s %s/%s %s %d [%s] %s", e.User.Username, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ObjectRef.Name,
			e.ResponseStatus.Code, e.Annotations[scope.AnnotationPrefix+"request"], e.Annotations[scope.AnnotationPrefix+"user"])
	}
	raw, err := os.ReadFile(log)
	if err != nil || bytes.Contains(raw, []byte("hub-token")) || bytes.Contains(raw, []byte("of-a-cluster")) {
		t.Errorf("there is a token in the audit log, or it cannot be read: %v", err)
	}
	for id, want := range map[string]string{
		"allowed": "system:serviceaccount:a:b list clusters/proxy cluster1 200 [GET /api/v1/namespaces/n/pods?limit=5] cluster:hub:system:serviceaccount:a:b",
		"denied":  "vera list clusters/proxy cluster1 403 [GET /api/v1/namespaces/n/pods?limit=5] ",
		"passed":  "system:anonymous list clusters/proxy cluster1 200 [GET /api/v1/namespaces/n/pods?limit=5] whom the managed cluster knows",
	} {
		if found[id] != want {
			t.Errorf("%s: %q, want %q", id, found[id], want)
		}
	}
}
