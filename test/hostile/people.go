package hostile

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

const sessionsPath = "/apis/clusterproxy.open-cluster-management.io/v1alpha1/sessions"

// maySessions is a right to sessions.
func maySessions(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"clusterproxy.open-cluster-management.io"}, Resources: []string{"sessions"}, Verbs: verbs}
}

// testSessions has users, with every right to the cluster and to half of what there is to do with
// sessions, look at another user's shell and end it, and get at its recording.
func (s *Suite) testSessions(t *testing.T) {
	cluster := s.attacker()
	victim := s.hubUser(t, "hostile-shell", mayReach(cluster, "*"), mayStream(cluster))
	tokens := map[string]string{
		"its user":          victim,
		"user of a cluster": s.hubUser(t, "hostile-sessions", mayReach(cluster, "*"), mayStream(cluster)),
		"who may list":      s.hubUser(t, "hostile-sessions-list", maySessions("list")),
		"who may watch":     s.hubUser(t, "hostile-sessions-watch", maySessions("watch")),
		"unknown":           "nobodys", "nobody": "",
	}
	s.mayDoAllThere(t, "hostile-shell")
	endpoints := s.endpoints(t, cluster)
	direct, aggregated := endpoints[0], endpoints[2]
	const secret = "what-only-the-shell-has-seen"
	before := s.recordings(t)
	path := "/api/v1/namespaces/default/pods/" + s.webPod(t) + "/exec?stdin=1&stdout=1&command=sh&command=-c&command=" + strings.ReplaceAll("echo "+secret+"; exec cat", " ", "%20")
	shell := follow("the victim", "exec", direct.name, opened(t, direct.dial(t, "http/1.1"), direct.request(http.MethodGet, path, victim, "", socket...), "the victim's shell"))
	session := s.sessionOf(t, "hostile-shell")
	for _, d := range []endpoint{direct, aggregated} {
		for who, token := range tokens {
			for _, try := range []struct{ method, path string }{
				{http.MethodGet, sessionsPath}, {http.MethodGet, sessionsPath + "?watch=1"}, {http.MethodGet, sessionsPath + "/" + session}, {http.MethodGet, sessionsPath + "?fieldSelector=metadata.name%3D" + session},
				{http.MethodDelete, sessionsPath + "/" + session}, {http.MethodDelete, sessionsPath}, {http.MethodPatch, sessionsPath + "/" + session}, {http.MethodPut, sessionsPath + "/" + session},
				{http.MethodPost, sessionsPath}, {http.MethodDelete, sessionsPath + "/../sessions/" + session}, {http.MethodDelete, sessionsPath + "/" + session + "/"}, {http.MethodGet, sessionsPath + "/" + session + "/recording"},
			} {
				code, _, body := d.send(t, requestText(try.method, try.path, d.host, token, ""))
				may := who == "who may list" && try.method == http.MethodGet && (try.path == sessionsPath || strings.Contains(try.path, "fieldSelector"))
				if !may && (code < 300 || code >= 500 || strings.Contains(body, `"kind":"exec"`)) || strings.Contains(body, secret) {
					t.Errorf("%s: %s asks for %s %s: %d %.300s, want it refused", d.name, who, try.method, try.path, code, body)
				}
			}
		}
	}
	s.seekRecording(t, before, secret, session, tokens, endpoints)
	select {
	case <-shell.ended:
		t.Error("the shell has ended")
	default:
	}
	// Who may end sessions does: the shell was there all the time.
	manager := s.hubUser(t, "hostile-sessions-end", maySessions("delete"))
	if code, _, body := aggregated.send(t, requestText(http.MethodDelete, sessionsPath+"/"+session, aggregated.host, manager, "")); code != http.StatusOK {
		t.Errorf("who may end sessions: %d %.300s, want 200", code, body)
	}
	select {
	case <-shell.ended:
	case <-time.After(testTimeout):
		t.Error("the shell goes on behind its end")
	}
}

// sessionOf waits for the session of a service account, and returns its name.
func (s *Suite) sessionOf(t *testing.T, account string) (name string) {
	t.Helper()
	eventually(t, "the session of "+account, func() error {
		raw, err := s.hub.RESTClient().Get().AbsPath(sessionsPath).DoRaw(t.Context())
		if err != nil {
			return err
		}
		var list v1alpha1.SessionList
		if err := json.Unmarshal(raw, &list); err != nil {
			return err
		}
		for _, one := range list.Items {
			if strings.HasSuffix(one.Status.User, ":"+account) {
				name = one.Name
				return nil
			}
		}
		return fmt.Errorf("sessions are %.300s", raw)
	})
	return name
}

// recordings are the files of the proxy API's pods.
func (s *Suite) recordings(t *testing.T) (files []string) {
	t.Helper()
	pods, err := s.hub.CoreV1().Pods(s.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: proxyAPI.selector})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		found, err := filepath.Glob(s.Lab.PodVolume("hub", pod.UID, "recordings") + "/*/*.cast")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	return files
}

// seekRecording asks all ports of the proxy API for the recording of a session that is open.
func (s *Suite) seekRecording(t *testing.T, before []string, secret, session string, tokens map[string]string, endpoints []endpoint) {
	t.Helper()
	var file string
	eventually(t, "the recording", func() error {
		for _, found := range s.recordings(t) {
			if raw, err := os.ReadFile(found); err == nil && strings.Contains(found, session) && strings.Contains(string(raw), secret) {
				file = found
				return nil
			}
		}
		return fmt.Errorf("recordings are %q, and were %q", s.recordings(t), before)
	})
	for path, want := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want mode %v", path, info, err, want)
		}
	}
	relative := filepath.Join(filepath.Base(filepath.Dir(file)), filepath.Base(file))
	targets := []string{"/recordings/" + relative, "/" + relative, "/recordings", "/recordings/", "/ui/" + relative, "/ui/../recordings/" + relative, "/ui/%2e%2e/recordings/" + relative, "/ui/..%2f..%2frecordings%2f" + relative,
		"//recordings/" + relative, file, "/ui/.." + file, "/logs/" + relative, "/debug/pprof", "/metrics", "/apis/clusterproxy.open-cluster-management.io/v1alpha1/recordings/" + session, sessionsPath + "/" + session + "/recording"}
	for _, d := range endpoints {
		for who, token := range tokens {
			for _, target := range targets {
				if code, _, body := d.send(t, requestText(http.MethodGet, target, d.host, token, "")); strings.Contains(body, secret) || strings.Contains(body, `"version":2`) {
					t.Errorf("%s: %s asks for %s: %d %.300s, want no recording", d.name, who, target, code, body)
				}
			}
		}
	}
	peers, err := s.Lab.ServiceAddress("hub", s.Namespace, "cluster-proxy-addon-user-peers", identity.ProxyAPIPeerPort)
	if err != nil {
		t.Fatal(err)
	}
	replica := clientTLS(t, s.pairOf(t, "cluster-proxy-api-client"), s.hubCA, identity.ProxyAPIPeerHost)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: replica, DisableKeepAlives: true}}
	for _, target := range targets {
		resp, err := client.Get("https://" + peers + target)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || strings.Contains(string(body), secret) {
			t.Errorf("the port for replicas, asked for %s: %d %.300s %v, want no recording", target, resp.StatusCode, body, err)
		}
	}
}

// testPage has other sites use the page's port: in a frame, by a link that was stolen, and with the
// client certificate in a user's browser, here the hub administrator's.
func (s *Suite) testPage(t *testing.T) {
	cluster := s.attacker()
	direct := s.endpoints(t, cluster)[0]
	const mark = "hostile-page-"
	want, header, page := direct.send(t, requestText(http.MethodGet, "/ui/", direct.host, "", ""))
	if want != http.StatusOK || !strings.Contains(header.Get("Content-Security-Policy"), "frame-ancestors 'none'") || header.Get("X-Frame-Options") != "DENY" || header.Get("Cross-Origin-Opener-Policy") != "same-origin" {
		t.Errorf("the page is %d with %v, want it in no frame", want, header)
	}
	for _, link := range []string{"/ui/?token=x", "/ui/?access_token=x&state=y", "/ui/?cluster=" + cluster} {
		code, header, body := direct.send(t, requestText(http.MethodGet, link, direct.host, "", ""))
		if code != http.StatusOK || body != page || len(header["Set-Cookie"]) > 0 || header.Get("Location") != "" {
			t.Errorf("the link %s is answered %d with %v, want the page that everybody gets", link, code, header)
		}
	}
	config, err := rest.TLSConfigFor(s.Lab.Hub.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	admin := direct
	admin.config = direct.config.Clone()
	admin.config.Certificates = config.Certificates
	admin.config.GetClientCertificate = config.GetClientCertificate
	asked := 0
	ask := func(method, path string, lines ...string) int {
		asked++
		code, _, _ := admin.send(t, admin.request(method, path, "", "", append(lines, fmt.Sprint("Audit-ID: ", mark, asked), "Content-Length: 0")...))
		return code
	}
	if code := ask(http.MethodGet, "/version"); code != http.StatusOK {
		t.Fatalf("the administrator with a certificate: %d, want 200", code)
	}
	s.saw(t, cluster, mark+"1")
	exec := "/api/v1/namespaces/default/pods/" + s.webPod(t) + "/exec?command=id&stdout=1"
	for name, try := range map[string]struct {
		method, path string
		lines        []string
	}{
		"a form":              {http.MethodPost, "/api/v1/namespaces/default/configmaps", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document", "Origin: https://evil.test"}},
		"fetch":               {http.MethodPost, "/api/v1/namespaces/default/configmaps", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Origin: https://evil.test"}},
		"a cluster's sandbox": {http.MethodDelete, "/api/v1/namespaces/default/configmaps", []string{"Sec-Fetch-Site: cross-site", "Origin: null"}},
		"another port":        {http.MethodDelete, "/api/v1/namespaces/default/configmaps", []string{"Sec-Fetch-Site: same-site", "Origin: https://127.0.0.1:1"}},
		"a WebSocket":         {http.MethodGet, exec, append([]string{"Origin: https://evil.test"}, socket...)},
		"an old browser":      {http.MethodPost, "/api/v1/namespaces/default/configmaps", []string{"Origin: https://evil.test"}},
	} {
		if code := ask(try.method, try.path, try.lines...); code != http.StatusForbidden {
			t.Errorf("%s of another site is answered %d, want 403", name, code)
		}
	}
	for i := 2; i <= asked; i++ {
		s.neverSaw(t, cluster, fmt.Sprint(mark, i))
	}
}
