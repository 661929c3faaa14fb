package hostile

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// review asks a kube-apiserver who the caller is.
const (
	reviewPath = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	review     = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
)

// forgedHeaders would make a user another user, or a request another request.
var forgedHeaders = map[string]string{
	"Impersonate-User": "admin", "Impersonate-Group": "system:masters", "Impersonate-Uid": "0", "Impersonate-Extra-Reason": "because",
	"X-Remote-User": "admin", "X-Remote-Group": "system:masters", "X-Remote-Uid": "0", "X-Remote-Extra-Reason": "because",
	"X-Forwarded-User": "admin", "X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "victim", "X-Forwarded-Proto": "http", "Forwarded": "for=127.0.0.1;host=victim",
	"Authorization": "Bearer nobodys", "Cluster-Proxy-Service": "kubernetes", "Cluster-Proxy-Namespace": "default", "Cluster-Proxy-Authorization": "Bearer nobodys",
	"X-Original-Url": "/api/v1/secrets", "X-Http-Method-Override": "DELETE",
}

// spellings are ways to write a header that some parser may take for it.
var spellings = map[string]func(name, value string) []string{
	"as it is": func(n, v string) []string { return []string{n + ": " + v} },
	"lower":    func(n, v string) []string { return []string{strings.ToLower(n) + ": " + v} },
	"upper":    func(n, v string) []string { return []string{strings.ToUpper(n) + ": " + v} },
	"mixed": func(n, v string) []string {
		return []string{strings.ToLower(n[:1]) + strings.ToUpper(n[1:]) + ": " + v}
	},
	"underscores":      func(n, v string) []string { return []string{strings.ReplaceAll(n, "-", "_") + ": " + v} },
	"first underscore": func(n, v string) []string { return []string{strings.Replace(n, "-", "_", 1) + ": " + v} },
	"lower underscores": func(n, v string) []string {
		return []string{strings.ToLower(strings.ReplaceAll(n, "-", "_")) + ": " + v}
	},
	"twice": func(n, v string) []string { return []string{n + ": nobody", n + ": " + v} },
	"twice, two ways": func(n, v string) []string {
		return []string{strings.ReplaceAll(n, "-", "_") + ": nobody", n + ": " + v}
	},
	"listed":           func(n, v string) []string { return []string{"Connection: " + n, n + ": " + v} },
	"listed, not sent": func(n, _ string) []string { return []string{"Connection: keep-alive, " + strings.ToLower(n)} },
	"underscore, listed": func(n, v string) []string {
		return []string{"Connection: " + strings.ReplaceAll(n, "-", "_"), n + ": " + v}
	},
	"blank before colon": func(n, v string) []string { return []string{n + " : " + v} },
	"folded":             func(n, v string) []string { return []string{"X-A: b", " " + n + ": " + v} },
	"after a bare CR":    func(n, v string) []string { return []string{"X-A: b\r" + n + ": " + v} },
	"after a bare LF":    func(n, v string) []string { return []string{"X-A: b\n" + n + ": " + v} },
	"with a NUL":         func(n, v string) []string { return []string{n + "\x00: " + v} },
	"double hyphen":      func(n, v string) []string { return []string{strings.Replace(n, "-", "--", 1) + ": " + v} },
	"in a trailer":       func(n, _ string) []string { return []string{"Trailer: " + n} },
}

// testForgedHeaders has a user of the hub pretend to be another one, in every spelling
// and at every endpoint. The cluster must see the user under their own name, or
// the request is refused.
func (s *Suite) testForgedHeaders(t *testing.T) {
	cluster := s.attacker()
	token := s.hubUser(t, "hostile-headers", append(suite.MayUseViews(), mayReach(cluster, "*"))...)
	// Two parsers read what comes by the hub's kube-apiserver. The one at the proxy API's own port
	// is the same for all other endpoints.
	few := []string{"as it is", "underscores", "listed"}
	for _, d := range append(s.endpoints(t, cluster), s.viewEndpoints(t, allView)...) {
		in := few
		if d.name == "aggregated" || d.name == "direct" {
			in = slices.Collect(maps.Keys(spellings))
		}
		t.Run(d.name, func(t *testing.T) { d.forge(t, token, in) })
	}
}

// forge asks a cluster who the user is, with each forged header in these spellings.
func (d endpoint) forge(t *testing.T, token string, in []string) {
	t.Helper()
	who := func(lines ...string) (int, authenticationv1.UserInfo, string) {
		code, _, body := d.send(t, d.request(http.MethodPost, reviewPath, token, review, lines...))
		var answer authenticationv1.SelfSubjectReview
		if code == http.StatusCreated {
			if err := json.Unmarshal([]byte(body), &answer); err != nil {
				t.Errorf("decoding the answer to %q: %v", lines, err)
			}
		}
		return code, answer.Status.UserInfo, body
	}
	code, honest, body := who()
	if code != http.StatusCreated || honest.Username != "cluster:hub:system:serviceaccount:default:hostile-headers" {
		t.Fatalf("without a forged header: answered %d %s, want 201 as the user", code, body)
	}
	codes := map[int]int{}
	for name, value := range forgedHeaders {
		for _, spelling := range in {
			code, user, body := who(spellings[spelling](name, value)...)
			codes[code]++
			switch code {
			case http.StatusCreated:
				if diff := cmp.Diff(honest, user); diff != "" {
					t.Errorf("%s, %s (-themselves +taken for):\n%s", name, spelling, diff)
				}
			case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
			default:
				t.Errorf("%s, %s: %d %s, want the user's own identity or a refusal", name, spelling, code, body)
			}
			// One that the hub reads as a wish to impersonate is refused for
			// the lack of that right, not passed over.
			plain := slices.Contains([]string{"as it is", "lower", "upper", "mixed"}, spelling)
			if strings.HasPrefix(name, "Impersonate-") && plain && code != http.StatusForbidden && code != http.StatusBadRequest {
				t.Errorf("%s, %s: %d, want a refusal", name, spelling, code)
			}
		}
	}
	t.Logf("answers: %v", codes)
	if codes[http.StatusCreated] == 0 || codes[http.StatusForbidden] == 0 || codes[http.StatusBadRequest] == 0 {
		t.Errorf("answers %v: too few kinds, something is wrong with the test", codes)
	}
}

// testWays has a user who may reach the attacker's cluster only try to get to
// the victim's by how a request is written.
func (s *Suite) testWays(t *testing.T) {
	a, v := s.attacker(), s.victim()
	token := s.hubUser(t, "hostile-ways", mayReach(a, "*"), mayStream(a))
	endpoints := s.endpoints(t, a)
	victim := s.endpoints(t, v)
	const mark = "hostile-ways-"
	asked := 0
	try := func(d endpoint, method, target, host string, lines ...string) int {
		t.Helper()
		asked++
		lines = append(lines, fmt.Sprint("Audit-ID: ", mark, asked))
		code, _, body := d.send(t, requestText(method, target, host, token, "", lines...))
		if code >= 500 && code != http.StatusNotImplemented {
			t.Errorf("%s: %s %s: %d %s, want less than 500, or 501", d.name, method, target, code, body)
		}
		return code
	}
	// The way is open where it should be, and nowhere else.
	for i, d := range endpoints {
		if code := try(d, http.MethodGet, d.prefix+"/version", d.host); code != http.StatusOK {
			t.Fatalf("%s: the attacker's own cluster answers %d", d.name, code)
		}
		if code := try(victim[i], http.MethodGet, victim[i].prefix+"/version", victim[i].host); code != http.StatusForbidden {
			t.Errorf("%s: the victim's cluster answers %d, want 403", d.name, code)
		}
	}
	escaped := fmt.Sprintf("%%%02x%s", v[0], v[1:])
	for _, d := range endpoints {
		base := strings.TrimSuffix(strings.TrimSuffix(d.prefix, "/proxy"), a)
		if base == "" {
			base = "/"
		}
		for _, tail := range []string{
			a + "/../" + v, a + "/%2e%2e/" + v, a + "/.%2E/" + v, a + "/..%2f" + v, a + "%2f..%2f" + v, a + "/..;/" + v, a + "\\..\\" + v, a + "/%5c..%5c" + v,
			a + "/%252e%252e/" + v, "/" + v, a + "//" + v, "./" + v, "%2e/" + v, escaped, strings.ToUpper(v), v + "%00", v + "%20", v + ".", a + "%0d%0aHost:" + v, a + "?/../" + v, a + "#/../" + v,
		} {
			for _, sub := range []string{"", "/proxy"} {
				try(d, http.MethodGet, base+tail+sub+"/version", d.host)
			}
		}
		for _, target := range []string{
			"https://" + d.host + victim[0].prefix + "/version", "https://" + v + "/version", "http://" + v + "." + suite.ClusterDomain + "/version", "//" + v + "/version", "*", v + ":443", "",
			"/apis/x/../.." + victim[0].prefix + "/version", "/apis/%2e%2e" + victim[0].prefix + "/version", "/livez/.." + victim[0].prefix + "/version", d.prefix + "/../" + v + "/proxy/version", d.prefix + "/..%2f..%2f" + v + "/proxy/version",
		} {
			try(d, http.MethodGet, target, d.host)
		}
		for _, host := range []string{
			v + "." + suite.ClusterDomain, strings.ToUpper(v + "." + suite.ClusterDomain), v + "." + suite.ClusterDomain + ".", v + "." + suite.ClusterDomain + ":443", a + "@" + v + "." + suite.ClusterDomain, v + "." + suite.ClusterDomain + "/", v + "%2e" + suite.ClusterDomain, a + "." + suite.ClusterDomain + "," + v + "." + suite.ClusterDomain,
		} {
			try(d, http.MethodGet, d.prefix+"/version", host)
			try(d, http.MethodGet, d.prefix+"/version", d.host, "Host: "+host)
			try(d, http.MethodGet, d.prefix+"/version", d.host, "X-Forwarded-Host: "+host, "X-Original-Url: "+victim[0].prefix+"/version", "X-Rewrite-Url: "+victim[0].prefix+"/version")
		}
		for _, authority := range []string{v + ":443", a + ":443@" + v + ":443", v + ".:443", strings.ToUpper(v) + ":443", v + "." + suite.ClusterDomain + ":443", "[" + v + "]:443", "kubernetes.default.svc." + v + ":443", escaped + ":443", "127.0.0.1:22", "169.254.169.254:80"} {
			if code := try(d, http.MethodConnect, authority, authority, "Proxy-Authorization: Bearer "+token); code == http.StatusOK {
				t.Errorf("%s: CONNECT %s is allowed", d.name, authority)
			}
		}
	}
	s.neverSaw(t, v, mark)
	s.saw(t, a, mark)
}

// testViewerExec has a user who may only read try to get into a container.
func (s *Suite) testViewerExec(t *testing.T) {
	cluster := s.attacker()
	token := s.hubUser(t, "hostile-viewer", mayReach(cluster, "get", "list", "watch"))
	const mark = "hostile-viewer-"
	const pod = "/api/v1/namespaces/default/pods/web"
	asked := 0
	for _, d := range s.endpoints(t, cluster) {
		if code, _, body := d.send(t, d.request(http.MethodGet, "/version", token, "", "Audit-ID: "+mark+"good")); code != http.StatusOK {
			t.Fatalf("%s: reading: %d %s, want 200", d.name, code, body)
		}
		for _, test := range []struct {
			path  string
			lines []string
		}{
			{pod + "/exec?command=id&stdout=1", socket},
			{pod + "/%65xec?command=id&stdout=1", socket},
			{"/" + pod + "/exec?command=id&stdout=1", socket},
			{pod + "//exec?command=id&stdout=1", socket},
			{pod + "/exec/?command=id&stdout=1", socket},
			{pod + "/exec?command=id&stdout=1&watch=1", socket},
			{"/api/v1/watch/namespaces/default/pods/web/exec?command=id&stdout=1", socket},
			{pod + "/attach?stdout=1", socket},
			{pod + "/portforward?ports=8080", socket},
			{pod + "/proxy/", socket},
			{pod + "/proxy/", nil},
			{"/api/v1/namespaces/default/services/web/proxy/", nil},
			{"/api/v1/nodes/node/proxy/exec/default/web/web?command=id", nil},
			{"/api/v1/proxy/namespaces/default/pods/web/", nil},
			{pod + "/exec?command=id&stdout=1", nil},
			{pod + "/exec?command=id&stdout=1", []string{"connection: keep-alive , uPGRADE", "UPGRADE: WebSocket"}},
			{pod + "/exec?command=id&stdout=1", []string{"Connection: keep-alive", "Connection: Upgrade", "Upgrade: h2c, websocket"}},
			{pod + "/exec?command=id&stdout=1", spdy},
			{"/version", []string{"Connection: Upgrade"}},
			{pod + "?command=id", socket},
			{"/version", socket},
		} {
			asked++
			lines := append(slices.Clone(test.lines), fmt.Sprint("Audit-ID: ", mark, asked))
			code, _, body := d.send(t, d.request(http.MethodGet, test.path, token, "", lines...))
			// The old way below /api/v1/proxy has a verb of its own.
			if code != http.StatusForbidden || !strings.Contains(body, "clusters/stream") && !strings.Contains(body, "cannot proxy resource") {
				t.Errorf("%s: %s with %q: %d %.300s, want 403 for the lack of clusters/stream", d.name, test.path, test.lines, code, body)
			}
		}
	}
	for id := range asked {
		if s.count(t, cluster, fmt.Sprintf("%q", fmt.Sprint(mark, id+1))) > 0 {
			t.Errorf("request %d has reached the cluster", id+1)
		}
	}
	s.saw(t, cluster, mark+"good")
}

// count is in how many audit events of a managed kube-apiserver a text is.
func (s *Suite) count(t *testing.T, cluster, text string) (n int) {
	t.Helper()
	log, err := os.ReadFile(s.Lab.AuditLog(cluster))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// saw wants a text in a managed kube-apiserver's audit log, which is written
// before an answer is.
func (s *Suite) saw(t *testing.T, cluster, text string) {
	t.Helper()
	suite.Eventually(t, fmt.Sprintf("%q in the audit log of %s", text, cluster), func() error {
		if s.count(t, cluster, text) == 0 {
			return fmt.Errorf("there is no such event")
		}
		return nil
	})
}

func (s *Suite) neverSaw(t *testing.T, cluster, text string) {
	t.Helper()
	if n := s.count(t, cluster, text); n > 0 {
		t.Errorf("%d events with %q in the audit log of %s", n, text, cluster)
	}
}
