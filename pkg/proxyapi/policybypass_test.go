package proxyapi

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// recordingMember has the requests that a cluster got, but for reads of what kinds it serves, which views begin with.
type recordingMember struct {
	mu   sync.Mutex
	seen []string
}

func (a *recordingMember) add(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = append(a.seen, what)
}

// take returns what has arrived since it was called before.
func (a *recordingMember) take() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.seen = nil }()
	return strings.Join(a.seen, ", ")
}

func (a *recordingMember) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/"); r.Method != http.MethodGet || len(parts) > 2 && (parts[0] != "apis" || len(parts) > 3) || r.Header.Get("Upgrade") != "" {
		a.add(r.Method + " " + r.RequestURI)
	}
	rw.Header().Set("Content-Type", "application/json")
	fmt.Fprint(rw, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
}

// bypassWorld has an AI agent, who may do anything by the rights of the hub, and impersonate anybody, and a policy for the group
// of such agents, and for passes, on cluster1. They only read there, and no Secrets. Bob and cluster2 have none.
func bypassWorld(t *testing.T) (w *world, member, other *recordingMember) {
	w = start(t, func(o *Options) { o.KarmadaAPI, o.Domain = true, "clusters.example.org" })
	member, other = &recordingMember{}, &recordingMember{}
	w.agent("cluster1", member, "cluster1")
	w.agent("cluster2", other, "cluster2")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			member.add("a connection")
			conn.Close()
		}
	}()
	w.hub.Forward("cluster1:443", listener.Addr().String())
	w.registries.add([]string{"cluster1", "cluster2"}, " Pod", " Secret")
	w.addView("both", "cluster1", "cluster2")
	w.addView("one", "cluster1")
	w.api.SetExposed(map[string]string{"a": "[{namespace: ns, service: web}, {namespace: ns, service: db, protocol: tcp}]"})
	const passes = "system:serviceaccounts:" + identity.PassNamespace
	w.api.User("agent", "agent", "ai-agents")
	w.api.User("bob", "bob", "people")
	w.api.User("pass", "system:serviceaccount:"+identity.PassNamespace+":ci-0123abcd", "system:serviceaccounts", passes)
	w.api.Allow("* * * *")
	guard := policyOf("agents-only-read", proxyv1alpha1.ModeEnforce, "cluster.labels['env'] != 'prod' || request.verb in ['get', 'list', 'watch'] || request.dryRun")
	guard.Spec.Subjects = []proxyv1alpha1.AccessPolicySubject{{Kind: "Group", Name: "ai-agents"}, {Kind: "Group", Name: passes}}
	for name, expression := range map[string]string{"no-secrets": "request.resource != 'secrets'", "no-streams": "!request.upgrade && request.service == ''"} {
		guard.Spec.Rules = append(guard.Spec.Rules, proxyv1alpha1.AccessPolicyRule{Name: name, Expression: "cluster.labels['env'] != 'prod' || " + expression})
	}
	w.policies.use(guard)
	return w, member, other
}

// exchange sends a request as it is, and returns what begins its answer; the code is 0 if there is none.
func (w *world) exchange(text string) (code int, body string) {
	w.t.Helper()
	conn := w.dialAs("http/1.1")
	defer conn.Close()
	fmt.Fprint(conn, text)
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return 0, err.Error()
	}
	if resp.StatusCode == http.StatusSwitchingProtocols || method == http.MethodConnect && resp.StatusCode == http.StatusOK {
		return resp.StatusCode, "a stream"
	}
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, fmt.Sprint(string(answer), errors.Join(err))
}

func (w *world) dialAs(protocol string) *tls.Conn {
	w.t.Helper()
	config := w.client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{protocol}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(w.url, "https://"), config)
	if err != nil {
		w.t.Fatal(err)
	}
	return conn
}

// Parts of requests that more than one attempt has.
const (
	bySocket      = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	bySPDY        = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
	pod           = "/api/v1/namespaces/a/pods/b"
	deleteOptions = `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":[]}`
)

// attempt is a request that must not arrive at the cluster.
type attempt struct{ method, path, header, body string }

// attempts are made at each endpoint of the cluster.
var attempts = []attempt{
	// Spellings of a path.
	{path: "/api/v1/secrets"}, {path: "/api/v1/secrets/"}, {path: "/api/v1/secrets?"}, {path: "/api/v1/%73ecrets"}, {path: "/api/v1/secret%73"}, {path: "/api/v1/secrets%2F"},
	{path: "/api/v1/./secrets"}, {path: "/api/v1/pods/../secrets"}, {path: "/api/v1/pods/%2e%2e/secrets"}, {path: "/api/v1/pods/.%2E/secrets"}, {path: "/api/v1/pods%2f..%2fsecrets"},
	{path: "/api/v1/pods\\..\\secrets"}, {path: "/api/v1/namespaces/a/secrets/b%00"}, {path: "/api/v1/secrets%0d%0aX: y"}, {path: "/api/v1/%zz/../secrets"}, {path: "/%61pi/v1/secrets"}, {path: "/api/v1/pods?x#/../secrets"},
	{path: "/api/v1/namespaces/a/secrets/b/"}, {path: "/api/v1/namespaces/a/%73ecrets/b"}, {path: "/api/v1/namespaces/%61/secrets"},
	// Watch in place of list, and the other way round.
	{path: "/api/v1/secrets?watch=1"}, {path: "/api/v1/secrets?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"}, {path: "/api/v1/secrets?watch=0&watch=1"},
	{path: "/api/v1/watch/secrets"}, {path: "/api/v1/watch/namespaces/a/secrets/b"}, {path: "/api/v1/secrets?watch=1", header: bySocket}, {path: "/api/v1/secrets?%77atch=1"},
	// Selectors, pages and forms of a list.
	{path: "/api/v1/secrets?fieldSelector=metadata.name%3Db"}, {path: "/api/v1/secrets?fieldSelector=metadata.namespace%3Da"}, {path: "/api/v1/secrets?labelSelector=a%3Db"}, {path: "/api/v1/secrets?limit=1&continue=x"},
	{path: "/api/v1/secrets", header: "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n"}, {path: "/api/v1/secrets", header: "Accept: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io\r\n"},
	{path: "/api/v1/secrets", header: "Accept: application/vnd.kubernetes.protobuf\r\n"},
	// Verbs, and headers that would change them.
	{method: "HEAD", path: "/api/v1/secrets"}, {method: "OPTIONS", path: pod}, {method: "LIST", path: "/api/v1/pods"}, {method: "list", path: "/api/v1/pods"}, {method: "WATCH", path: "/version"}, {method: "delete", path: pod}, {method: "get", path: "/api/v1/secrets"}, {method: "PUT", path: pod, body: "{}"},
	{method: "PATCH", path: pod, header: "Content-Type: application/apply-patch+yaml\r\n", body: "{}"}, {method: "DELETE", path: pod}, {method: "DELETE", path: "/api/v1/namespaces/a/pods"}, {method: "DELETE", path: "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Db"},
	{method: "POST", path: "/api/v1/namespaces/a/pods", header: "X-HTTP-Method-Override: GET\r\n", body: "{}"}, {method: "DELETE", path: pod, header: "X-HTTP-Method: GET\r\nX-Method-Override: GET\r\n"}, {method: "DELETE", path: pod + "?_method=GET"},
	{method: "POST", path: "/api/v1/secrets", header: "X-HTTP-Method-Override: GET\r\nX-Original-URL: /api/v1/pods\r\nX-Rewrite-URL: /api/v1/pods\r\n"},
	{method: "POST", path: "/api/v1/namespaces/a/pods", header: "Content-Type: application/vnd.kubernetes.protobuf\r\n", body: "k8s\x00\n"}, {method: "POST", path: "/api/v1/namespaces/a/pods", header: "Content-Type: application/cbor\r\n", body: "\xd9\xd9\xf7\xa0"},
	{method: "POST", path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", body: "{}"}, {method: "POST", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/x", body: "{}"}, {method: "POST", path: "/apis/authentication.k8s.io/v1/tokenreviews", body: "{}"},
	// Subresources.
	{method: "POST", path: pod + "/eviction", body: "{}"}, {method: "POST", path: pod + "/binding", body: "{}"}, {method: "PUT", path: pod + "/status", body: "{}"}, {method: "PATCH", path: pod + "/ephemeralcontainers", body: "{}"},
	{method: "PATCH", path: "/apis/apps/v1/namespaces/a/deployments/b/scale", body: "{}"}, {method: "POST", path: "/api/v1/namespaces/a/serviceaccounts/b/token", body: "{}"},
	{method: "PUT", path: "/apis/certificates.k8s.io/v1/certificatesigningrequests/b/approval", body: "{}"}, {method: "PUT", path: "/api/v1/namespaces/a/finalize", body: "{}"},
	// Streams, and what becomes one.
	{path: pod + "/exec?command=id", header: bySocket}, {path: pod + "/exec?command=id", header: bySPDY}, {path: pod + "/exec?command=id"}, {path: pod + "/exec?watch=1", header: bySocket}, {method: "POST", path: pod + "/exec?command=id", header: bySPDY},
	{path: pod + "/exec/", header: bySocket}, {path: pod + "/e%78ec", header: bySocket}, {path: pod + "/attach", header: bySocket}, {path: pod + "/portforward?ports=1", header: bySocket}, {path: "/api/v1/pods", header: bySocket}, {path: "/api/v1/pods", header: bySPDY},
	{path: "/api/v1/pods", header: "Connection: keep-alive, uPgRaDe\r\nUpgrade: x\r\n"}, {path: "/version", header: bySPDY}, {path: pod + "/exec?command=id", header: "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"},
	// Services and others that proxy.
	{path: "/api/v1/namespaces/default/services/https:kubernetes:443/proxy/api/v1/secrets"}, {path: "/api/v1/namespaces/a/services/b/proxy"}, {path: pod + ":6443/proxy/api/v1/secrets"}, {path: "/api/v1/nodes/n/proxy/run/a/b/c"}, {path: "/api/v1/nodes/n:10250/proxy/pods"},
	{path: "/api/v1/namespaces/ns/services/web/proxy-service/"}, {path: "/api/v1/namespaces/ns/services/http:web:80/proxy-service/x"}, {path: "/api/v1/namespaces/ns/services/%77eb/proxy-service/"}, {path: "/api/v1/proxy/namespaces/a/pods/b"},
	// A dry run that is none, or may be none.
	{method: "DELETE", path: pod + "?dryRun=All", body: deleteOptions}, {method: "DELETE", path: "/api/v1/namespaces/a/pods?dryRun=All", body: deleteOptions}, {method: "DELETE", path: pod + "?dryRun=All", header: "Content-Type: application/vnd.kubernetes.protobuf\r\n", body: "k8s\x00\n"},
	{method: "DELETE", path: pod + "?dryRun=All", header: "Content-Type: application/cbor\r\n", body: "\xd9\xd9\xf7\xa0"}, {method: "DELETE", path: pod + "?dryRun=All", header: "Transfer-Encoding: chunked\r\n", body: "36\r\n" + deleteOptions + "\r\n0\r\n\r\n"},
	{method: "POST", path: pod + "/eviction?dryRun=All", body: "{}"}, {method: "POST", path: "/api/v1/namespaces/a/serviceaccounts/b/token?dryRun=All", body: "{}"}, {method: "POST", path: "/api/v1/namespaces/a/pods?dryRun=All&dryRun=None", body: "{}"},
	{method: "POST", path: "/api/v1/namespaces/a/pods?dryRun=", body: "{}"}, {method: "POST", path: "/api/v1/namespaces/a/pods?dryrun=All", body: "{}"}, {method: "POST", path: "/api/v1/namespaces/a/pods?x=1;dryRun=All", body: "{}"},
	{method: "POST", path: "/api/v1/namespaces/a/pods", header: "Content-Type: application/x-www-form-urlencoded\r\n", body: "dryRun=All"}, {method: "PUT", path: pod + "#?dryRun=All", body: "{}"}, {method: "POST", path: pod + "/exec?dryRun=All", header: bySPDY},
	{method: "POST", path: "/api/v1/namespaces/a/secrets?dryRun=All", body: "{}"},
	// Another user's name.
	{method: "DELETE", path: pod, header: "Impersonate-User: bob\r\n"}, {method: "DELETE", path: pod, header: "impersonate-user: bob\r\nImpersonate-Group: people\r\n"}, {path: "/api/v1/secrets", header: "Impersonate-User: bob\r\nImpersonate-Uid: 1\r\nImpersonate-Extra-A: b\r\n"},
	{path: pod + "/exec?command=id", header: bySocket + "Impersonate-User: bob\r\n"}, {method: "DELETE", path: pod, header: "Impersonate-User: system:serviceaccount:ns:robot\r\n"}, {method: "DELETE", path: pod, header: "Impersonate-Group: people\r\n"},
	{method: "DELETE", path: pod, header: "Impersonate-User: agent\r\nImpersonate-Group: people\r\n"}, {method: "DELETE", path: pod, header: "X-Remote-User: bob\r\nX-Remote-Group: people\r\n"}, {method: "DELETE", path: pod, header: "X-Forwarded-User: bob\r\nImpersonate_User: bob\r\n"},
}

// TestPolicyBypasses tries to get around a policy. Nothing arrives at the cluster, and the answer is a refusal.
func TestPolicyBypasses(t *testing.T) {
	w, member, other := bypassWorld(t)
	// The policy lets reads arrive, and everything of users whom it does not select.
	for _, allowed := range []string{"GET /cluster1/api/v1/pods|agent", "DELETE /cluster1" + pod + "?dryRun=All|agent", "DELETE /cluster1" + pod + "|bob", "GET /cluster1/api/v1/secrets|bob"} {
		line, token, _ := strings.Cut(allowed, "|")
		if code, body := w.exchange(line + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + "\r\nConnection: close\r\n\r\n"); code != 200 || member.take() == "" {
			t.Fatalf("%s: %d %s, want it to arrive", allowed, code, body)
		}
	}
	endpoints := map[string][2]string{
		"direct": {"/cluster1", "x"}, "direct, escaped": {"/%63luster1", "x"}, "host": {"", "cluster1.clusters.example.org"}, "host, in other letters": {"", "CLUSTER1.Clusters.example.org.:443"},
		"aggregated": {scope.ClustersPath + "cluster1/proxy", "x"}, "Karmada's": {karmadasClusters + "/cluster1/proxy", "x"},
	}
	for endpoint, at := range endpoints {
		for _, a := range attempts {
			for _, token := range []string{"agent", "pass"} {
				if token == "pass" && endpoint != "direct" {
					continue
				}
				code, body := w.try(token, at[0]+a.path, at[1], a)
				w.mustFail(member, fmt.Sprintf("%s, as %s: %s %s %q %q", endpoint, token, a.method, a.path, a.header, a.body), code, body)
			}
		}
	}
	if other.take() != "" {
		t.Error("something has arrived at the other cluster")
	}
}

// try makes an attempt.
func (w *world) try(token, target, host string, a attempt) (int, string) {
	w.t.Helper()
	if a.method == "" {
		a.method = http.MethodGet
	}
	length := ""
	if !strings.Contains(a.header, "chunked") {
		length = fmt.Sprintf("Content-Length: %d\r\n", len(a.body))
	}
	return w.exchange(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n%s%s\r\n%s", a.method, target, host, token, length, a.header, a.body))
}

// mustFail checks that an attempt was refused.
func (w *world) mustFail(member *recordingMember, what string, code int, body string) {
	w.t.Helper()
	if came := member.take(); came != "" || code != 0 && (code < 400 || code >= 500) && code != http.StatusNotImplemented && code != http.StatusHTTPVersionNotSupported {
		w.t.Errorf("%s: %s arrived; %d %.300s", what, came, code, body)
	}
}

// TestPolicyBypassesOfViews goes by way of views, which may answer without the cluster.
func TestPolicyBypassesOfViews(t *testing.T) {
	w, member, _ := bypassWorld(t)
	endpoints := []string{"/@both", "/%40both", "/@one", scope.ViewsPath + "both/proxy", scope.ViewsPath + "one/proxy", karmadasClusters + "/*/proxy", karmadasClusters + "/%2A/proxy", karmadasView}
	object := func(meta string) string { return `{"apiVersion":"v1","kind":"Pod","metadata":{` + meta + `}}` }
	for _, at := range endpoints {
		for _, a := range []attempt{
			{path: "/api/v1/secrets"}, {path: "/api/v1/%73ecrets"}, {path: "/api/v1/secrets?watch=1&timeoutSeconds=1"}, {path: "/api/v1/secrets?fieldSelector=metadata.cluster%3Dcluster1"}, {path: "/api/v1/secrets?labelSelector=a%3Db&limit=1"},
			{path: "/api/v1/namespaces/a/secrets/b@cluster1"}, {path: "/api/v1/namespaces/a/secrets/b%40cluster1"}, {path: "/api/v1/namespaces/a/secrets/b@cluster2@cluster1"}, {path: "/api/v1/namespaces/a@cluster1/secrets/b"},
			{method: "DELETE", path: pod + "@cluster1"}, {method: "DELETE", path: pod + "@cluster1?dryRun=All", body: deleteOptions}, {method: "DELETE", path: "/api/v1/namespaces/a/pods?fieldSelector=metadata.cluster%3Dcluster1"}, {method: "PUT", path: pod + "@cluster1", body: object(`"name":"b@cluster1"`)},
			{method: "POST", path: "/api/v1/namespaces/a/pods", body: object(`"name":"b@cluster1"`)}, {method: "POST", path: "/api/v1/namespaces/a/pods", body: object(`"name":"b","annotations":{"` + fleet.AnnotationCluster + `":"cluster1"}`)},
			{path: pod + "@cluster1/exec?command=id", header: bySocket}, {method: "POST", path: pod + "@cluster1/exec?command=id", header: bySPDY}, {path: pod + "@cluster1/portforward", header: bySocket}, {path: "/api/v1/namespaces/a/services/b@cluster1/proxy/"},
			{method: "POST", path: pod + "@cluster1/eviction", body: "{}"}, {path: "/api/v1/secrets", header: "Impersonate-User: bob\r\n"}, {method: "DELETE", path: pod + "@cluster1", header: "Impersonate-User: bob\r\nImpersonate-Group: people\r\n"},
		} {
			code, body := w.try("agent", at+a.path, "x", a)
			if came := member.take(); came != "" || code == http.StatusSwitchingProtocols {
				t.Errorf("%s: %s %s %q: %s arrived; %d %.300s", at, a.method, a.path, a.header, came, code, body)
			}
		}
	}
}

// TestPolicyBypassesOfConnect asks for connections, on which nothing could be seen.
func TestPolicyBypassesOfConnect(t *testing.T) {
	w, member, _ := bypassWorld(t)
	for _, target := range []string{"cluster1:443", "CLUSTER1:443", "cluster1:6443", "cluster1.:443", "cluster1.clusters.example.org:443", "%63luster1:443", "kubernetes.default.svc.cluster1:443", "db.ns.svc.cluster1:5432", "web.ns.svc.cluster1:80",
		"DB.ns.svc.cluster1:5432", "@one:443", "@both:443", "127.0.0.1.cluster1:443", "/cluster1"} {
		for _, header := range []string{"", "Impersonate-User: bob\r\n"} {
			code, body := w.exchange(fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: %s\r\n%s\r\n", target, target, basic("x", "agent"), header))
			w.mustFail(member, "CONNECT "+target+" "+header, code, body)
		}
	}
}

// TestPolicyBypassesByHTTP2 has header fields that HTTP/1.1 does not know.
func TestPolicyBypassesByHTTP2(t *testing.T) {
	w, member, _ := bypassWorld(t)
	const secrets, pods = "/cluster1/api/v1/secrets", "/cluster1/api/v1/pods"
	for name, fields := range map[string][]string{
		"a plain request":               {":method GET", ":path " + secrets},
		"two paths":                     {":method GET", ":path " + pods, ":path " + secrets},
		"two paths, the other way":      {":method GET", ":path " + secrets, ":path " + pods},
		"two methods":                   {":method GET", ":method DELETE", ":path /cluster1" + pod},
		"a path behind the header":      {":method GET", ":path " + pods, "x-a b", ":path " + secrets},
		"an absolute path":              {":method GET", ":path https://x" + secrets},
		"no slash":                      {":method GET", ":path cluster1/api/v1/secrets"},
		"a host and an authority":       {":method GET", ":authority cluster2.clusters.example.org", ":path /api/v1/secrets", "host cluster1.clusters.example.org"},
		"the authority of the cluster":  {":method GET", ":authority cluster1.clusters.example.org", ":path /api/v1/secrets", "host cluster2.clusters.example.org"},
		"a WebSocket":                   {":method CONNECT", ":protocol websocket", ":path /cluster1" + pod + "/exec?command=id"},
		"a WebSocket that gets":         {":method GET", ":protocol websocket", ":path /cluster1" + pod + "/exec?command=id"},
		"CONNECT":                       {":method CONNECT", ":authority cluster1:443"},
		"CONNECT with a path":           {":method CONNECT", ":authority cluster1:443", ":path " + pods},
		"an upgrade":                    {":method GET", ":path " + pods, "connection upgrade", "upgrade websocket"},
		"exec":                          {":method GET", ":path /cluster1" + pod + "/exec?command=id"},
		"a field with capitals":         {":method DELETE", ":path /cluster1" + pod, "Impersonate-User bob"},
		"a line in the path":            {":method GET", ":path " + pods + "\r\nx: y" + secrets},
		"a line in the method":          {":method GET\r\nX:", ":path " + secrets},
		"a method in other letters":     {":method Get", ":path " + secrets},
		"a status":                      {":method GET", ":path " + secrets, ":status 200"},
		"a scheme":                      {":method GET", ":scheme http", ":path " + secrets},
		"a body that the header denies": {":method DELETE", ":path /cluster1" + pod + "?dryRun=All", "content-length 0", "body"},
		"a body without a length":       {":method DELETE", ":path /cluster1" + pod + "?dryRun=All", "body"},
		"impersonation":                 {":method DELETE", ":path /cluster1" + pod, "impersonate-user bob", "impersonate-group people"},
		"an override":                   {":method POST", ":path " + pods, "x-http-method-override GET"},
	} {
		code := w.tryHTTP2(fields)
		w.mustFail(member, name, code, fmt.Sprint(fields))
	}
}

// tryHTTP2 sends header fields as they are, and a body if the last one is "body". It returns the status, or 0 if the
// server ends the stream or the connection.
func (w *world) tryHTTP2(fields []string) (code int) {
	w.t.Helper()
	hasBody := fields[len(fields)-1] == "body"
	if hasBody {
		fields = fields[:len(fields)-1]
	}
	var out, block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	add := func(name, value string) {
		if err := encoder.WriteField(hpack.HeaderField{Name: name, Value: value}); err != nil {
			w.t.Fatal(err)
		}
	}
	for name, value := range map[string]string{":scheme": "https", ":authority": "x"} {
		connects := slices.Contains(fields, ":method CONNECT") && !slices.Contains(fields, ":protocol websocket")
		if !slices.ContainsFunc(fields, func(f string) bool { return strings.HasPrefix(f, name+" ") }) && !connects {
			add(name, value)
		}
	}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, " ")
		add(name, value)
	}
	add("authorization", "Bearer agent")
	add("proxy-authorization", basic("x", "agent"))
	conn := w.dialAs("h2")
	defer conn.Close()
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, bufio.NewReader(conn))
	err := errors.Join(framer.WriteSettings(), framer.WriteSettingsAck(),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: !hasBody, EndHeaders: true}))
	if hasBody {
		err = errors.Join(err, framer.WriteData(1, true, []byte(deleteOptions)))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	_, _ = out.WriteTo(conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return 0
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			_, _ = fmt.Sscan(frame.PseudoValue("status"), &code)
			return code
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return 0
		}
	}
}
