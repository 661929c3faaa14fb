package hostile

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	const account, secret = "hostile-shell", "what-only-the-shell-has-seen"
	cluster := s.Recorded
	victim := s.hubUser(t, account, mayReach(cluster, "*"), mayStream(cluster))
	tokens := map[string]string{
		"its user":          victim,
		"user of a cluster": s.hubUser(t, "hostile-sessions", mayReach(cluster, "*"), mayStream(cluster)),
		"who may list":      s.hubUser(t, "hostile-sessions-list", maySessions("list")),
		"who may watch":     s.hubUser(t, "hostile-sessions-watch", maySessions("watch")),
		"unknown":           "nobodys", "nobody": "",
	}
	s.mayDoAllOn(t, cluster, account)
	endpoints := s.endpoints(t, cluster)
	direct, aggregated := endpoints[0], endpoints[2]
	exec := "/api/v1/namespaces/default/pods/" + s.webPodOf(t, cluster) + "/exec?" +
		url.Values{"stdin": {"1"}, "stdout": {"1"}, "command": {"sh", "-c", "echo " + secret + "; exec cat"}}.Encode()
	shell := follow("the victim", "exec", direct.name, opened(t, direct.dial(t, "http/1.1"), direct.request(http.MethodGet, exec, victim, "", socket...), "the victim's shell"))
	session := s.sessionOf(t, account)
	const denied = `cluster_proxy_api_requests_rejected_total{reason="forbidden"}`
	before, err := s.podMetric(t.Context(), proxyAPI, denied)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []endpoint{direct, aggregated} {
		for who, token := range tokens {
			s.trySession(t, d, who, token, session, secret)
		}
	}
	// Behind the hub's kube-apiserver, that is who refuses. At its own port the proxy API counts.
	if after, err := s.podMetric(t.Context(), proxyAPI, denied); err != nil || after <= before {
		t.Errorf("%s went from %v to %v, %v, want more", denied, before, after, err)
	}
	s.seekRecording(t, secret, session, tokens, endpoints)
	select {
	case <-shell.ended:
		t.Fatal("the shell has ended")
	default:
	}
	// Users with the right to end sessions do: the shell was there all the time.
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

// trySession has one user do everything to a session of another one.
func (s *Suite) trySession(t *testing.T, d endpoint, who, token, session, secret string) {
	t.Helper()
	one := sessionsPath + "/" + session
	byName := sessionsPath + "?fieldSelector=metadata.name%3D" + session
	for _, try := range []struct{ method, path string }{
		{http.MethodGet, sessionsPath}, {http.MethodGet, sessionsPath + "?watch=1"}, {http.MethodGet, one}, {http.MethodGet, byName},
		{http.MethodDelete, one}, {http.MethodDelete, sessionsPath}, {http.MethodPatch, one}, {http.MethodPut, one}, {http.MethodPost, sessionsPath},
		{http.MethodDelete, sessionsPath + "/../sessions/" + session}, {http.MethodDelete, one + "/"}, {http.MethodGet, one + "/recording"},
	} {
		code, _, body := d.send(t, requestText(try.method, try.path, d.host, token, ""))
		switch may := who == "who may list" && try.method == http.MethodGet && (try.path == sessionsPath || try.path == byName); {
		case strings.Contains(body, secret):
			t.Errorf("%s: %s asks for %s %s, and reads what the shell has said: %.300s", d.name, who, try.method, try.path, body)
		case may && (code != http.StatusOK || !strings.Contains(body, session)):
			t.Errorf("%s: %s asks for %s %s: %d %.300s, want 200 with the session", d.name, who, try.method, try.path, code, body)
		case !may && (code < 300 || code >= 500 || strings.Contains(body, `"kind":"exec"`)):
			t.Errorf("%s: %s asks for %s %s: %d %.300s, want it refused", d.name, who, try.method, try.path, code, body)
		}
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
	if name == "" {
		t.FailNow()
	}
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

// recordingOf waits for the file with a text in it.
func (s *Suite) recordingOf(t *testing.T, session, text string) (file string) {
	t.Helper()
	eventually(t, "the recording", func() error {
		for _, found := range s.recordings(t) {
			if raw, err := os.ReadFile(found); err == nil && strings.Contains(found, session) && strings.Contains(string(raw), text) {
				file = found
				return nil
			}
		}
		return fmt.Errorf("recordings are %q", s.recordings(t))
	})
	if file == "" {
		t.FailNow()
	}
	return file
}

// seekRecording asks all ports of the proxy API for the recording of a session that is open.
func (s *Suite) seekRecording(t *testing.T, secret, session string, tokens map[string]string, endpoints []endpoint) {
	t.Helper()
	file := s.recordingOf(t, session, secret)
	for path, want := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want mode %v", path, info, err, want)
		}
	}
	relative := filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file)
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
