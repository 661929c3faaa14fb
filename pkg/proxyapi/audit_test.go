package proxyapi

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// withAuditLog has a proxy API write what it audits to a file.
func withAuditLog(t *testing.T) (log string, set func(*Options)) {
	t.Helper()
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return log, func(o *Options) {
		o.Audit.PolicyFile, o.Audit.LogOptions.Path, o.Audit.LogOptions.BatchOptions.Mode = policy, log, "blocking"
	}
}

// eventsOf ends a proxy API and returns the events in its audit log, of stage ResponseComplete.
func (w *world) eventsOf(t *testing.T, log string) (found []auditv1.Event) {
	t.Helper()
	w.stop()
	if err := w.ended(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.Stage == "ResponseComplete" {
			found = append(found, e)
		}
	}
	return found
}

// audited starts a proxy API with an audit log. events ends it and returns its events.
func audited(t *testing.T, prepare ...func(*Server)) (w *world, events func() []auditv1.Event) {
	t.Helper()
	log, set := withAuditLog(t)
	w = startWith(t, func(s *Server) {
		for _, f := range prepare {
			f(s)
		}
	}, set)
	return w, func() []auditv1.Event { return w.eventsOf(t, log) }
}

// raw sends a request as it is written and returns the answer's code.
func (w *world) raw(request string) int {
	w.t.Helper()
	config := w.client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(w.url, "https://"), config)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, request)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode
}

// TestRefusalsAreAudited has requests that are refused before anybody is asked
// who sent them.
func TestRefusalsAreAudited(t *testing.T) {
	w, events := audited(t)
	want := map[string]int32{}
	for i, tc := range []struct {
		target string
		header string
		code   int
	}{
		{target: "/cluster1/%2e%2e/cluster2/api", code: 400},
		{target: "/cluster1/../cluster2/api", code: 400},
		{target: "/", code: 404},
		{target: "/cluster1/" + strings.Repeat("x", scope.MaxHeaderBytes), code: 431},
		{target: "/cluster1/api", header: "X: " + strings.Repeat("x", scope.MaxHeaderBytes) + "\r\n", code: 431},
	} {
		id := fmt.Sprint("refused-", i)
		want[id] = int32(tc.code)
		if code := w.raw("GET " + tc.target + " HTTP/1.1\r\nHost: x\r\nAudit-Id: " + id + "\r\nAuthorization: Bearer secret\r\n" + tc.header + "\r\n"); code != tc.code {
			t.Errorf("%.50s: %d, want %d", tc.target, code, tc.code)
		}
	}
	for _, e := range events() {
		if e.User.Username != filter.Anonymous.Name || e.ResponseStatus.Code != want[string(e.AuditID)] || len(e.RequestURI) > 2*filter.MaxRefusedURL {
			t.Errorf("%s: %s %.100s %d (%d bytes); want %s, %d and %d bytes at most", e.AuditID, e.User.Username, e.RequestURI, e.ResponseStatus.Code, len(e.RequestURI),
				filter.Anonymous.Name, want[string(e.AuditID)], 2*filter.MaxRefusedURL)
		}
		delete(want, string(e.AuditID))
	}
	if len(want) > 0 {
		t.Errorf("no events of %v", want)
	}
}

// TestConnectIsAudited has an event say who connected with what.
func TestConnectIsAudited(t *testing.T) {
	w, events := audited(t)
	w.api.User("hub-token", "jane")
	w.api.User("viewer", "vera")
	w.api.Allow("jane create clusters/proxy cluster1", "jane create clusters/stream cluster1", "vera get clusters/proxy cluster1")
	managed := httptest.NewServer(http.NotFoundHandler())
	defer managed.Close()
	w.hub.Forward("cluster1:443", managed.Listener.Addr().String())
	for token, code := range map[string]int{"hub-token": 200, "viewer": 403} {
		if got := w.raw("CONNECT cluster1:443 HTTP/1.1\r\nHost: cluster1:443\r\nAudit-Id: " + token[:3] + "\r\nProxy-Authorization: " + basic("x", token) + "\r\n\r\n"); got != code {
			t.Errorf("%s: %d, want %d", token, got, code)
		}
	}
	found := map[string]string{}
	for _, e := range events() {
		found[string(e.AuditID)] = fmt.Sprintf("%s %s %s/%s %s %d [%s] %s", e.User.Username, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource, e.ObjectRef.Name,
			e.ResponseStatus.Code, e.Annotations[scope.AnnotationPrefix+"request"], e.Annotations[scope.AnnotationPrefix+"cluster"])
	}
	for id, want := range map[string]string{
		"hub": "jane create clusters/proxy cluster1 101 [CONNECT cluster1:443] cluster1",
		"vie": "vera create clusters/proxy cluster1 403 [CONNECT cluster1:443] cluster1",
	} {
		if found[id] != want {
			t.Errorf("%s: %q, want %q", id, found[id], want)
		}
	}
}

// TestConstrainedImpersonationOfStreams has somebody who may read as another
// user, and must not exec as that user.
func TestConstrainedImpersonationOfStreams(t *testing.T) {
	w := start(t)
	w.api.User("reader", "reader")
	w.api.User("operator", "operator")
	w.api.Allow("alice * clusters/proxy cluster1", "alice create clusters/stream cluster1",
		"reader impersonate:user-info users alice", "reader impersonate-on:user-info:get clusters/proxy cluster1",
		"operator impersonate:user-info users alice", "operator impersonate-on:user-info:get clusters/proxy cluster1", "operator impersonate-on:user-info:create clusters/stream cluster1")
	seen := make(chan *http.Request, 1)
	w.agent("cluster1", keeping(seen), "cluster1")
	client := w.client("http/1.1")
	for _, tc := range []struct {
		token, path string
		upgrade     bool
		code        int
	}{
		{"reader", "/cluster1/version", false, 200},
		{"reader", "/cluster1/api/v1/namespaces/a/pods/b/exec?command=sh", true, 403},
		{"reader", "/cluster1/api/v1/namespaces/a/pods/b/exec?command=sh", false, 403},
		{"operator", "/cluster1/version", false, 200},
		{"operator", "/cluster1/api/v1/namespaces/a/pods/b/exec?command=sh", true, 200},
	} {
		header := http.Header{"Authorization": {"Bearer " + tc.token}, "Impersonate-User": {"alice"}}
		if tc.upgrade {
			header.Set("Connection", "Upgrade")
			header.Set("Upgrade", "websocket")
		}
		resp, body := get(t, client, w.url+tc.path, header)
		if resp.StatusCode != tc.code {
			t.Errorf("%s %s: %d %s, want %d", tc.token, tc.path, resp.StatusCode, body, tc.code)
		}
		select {
		case r := <-seen:
			if tc.code != 200 || r.Header.Get("X-Remote-User") != "alice" || r.Header.Get("Impersonate-User") != "" {
				t.Errorf("%s %s: the cluster saw %v", tc.token, tc.path, r.Header)
			}
		default:
		}
	}
}
