package diagnose

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

// probedHub has cluster c1, with a pod in namespace team and none in others. Requests whose
// path behind the cluster's ends with refused are answered with that Status.
type probedHub struct {
	refused string
	with    metav1.Status
}

func (h probedHub) start(t *testing.T) (kubeconfig string) {
	t.Helper()
	const inTeam = "/api/v1/namespaces/team/pods"
	mux := http.NewServeMux()
	reply := func(w http.ResponseWriter, code int, object any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(object); err != nil {
			t.Error(err)
		}
	}
	mux.HandleFunc(cli.GroupPath, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, v1alpha1.ClusterList{Items: []v1alpha1.Cluster{{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}}})
	})
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, map[string]string{"gitVersion": "v1"}) })
	mux.HandleFunc(cli.GroupPath+"/c1/proxy/", func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, cli.GroupPath+"/c1/proxy")
		query := r.URL.Query()
		kind := path
		if query.Get("watch") != "" {
			kind = "watch"
		}
		switch {
		case h.refused != "" && strings.HasSuffix(kind, h.refused):
			reply(w, int(h.with.Code), h.with)
		case path == "/version":
			reply(w, 200, map[string]string{"gitVersion": "v1"})
		case path == "/apis/authentication.k8s.io/v1/selfsubjectreviews" && r.Method == http.MethodPost:
			reply(w, 201, authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
				Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "ann", Groups: []string{"devs", "all"}}}})
		case kind == "watch":
			if path == inTeam && h.refused == "" && query.Get("resourceVersion") != "7" {
				t.Errorf("the watch begins at %q, want the list's 7", query.Get("resourceVersion"))
			}
			w.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case strings.HasSuffix(path, "/pods"):
			list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
			if path == inTeam {
				list.Items = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}}
			}
			reply(w, 200, list)
		case path == inTeam+"/shop":
			reply(w, 200, corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
		case path == inTeam+"/shop/log" && query.Get("container") == "main":
			_, _ = io.WriteString(w, "started\n")
		default:
			reply(w, 404, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound, Message: path + " is not there"})
		}
	})
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	return clitest.WriteKubeconfig(t, server)
}

func TestProbes(t *testing.T) {
	for name, test := range map[string]struct {
		hub     probedHub
		args    []string
		good    []string // IDs
		skipped []string
		bad     map[string]string // ID and a part of the remedy
		text    string
	}{
		"all good":         {good: []string{"test-get", "test-whoami", "test-list", "test-watch", "test-logs"}, skipped: []string{"test-exec"}, text: `you are "ann" there, of groups devs, all`},
		"no pod":           {args: []string{"-n", "empty"}, good: []string{"test-get", "test-whoami", "test-list", "test-watch"}, skipped: []string{"test-logs", "test-exec"}, text: "another one with --namespace"},
		"hub refuses":      {hub: probedHub{"/version", clitest.StatusOf(403, metav1.StatusReasonForbidden, v1alpha1.GroupVersion.Group, "no")}, bad: map[string]string{"test-get": "--clusterrole=cluster-proxy-user"}},
		"no tunnel":        {hub: probedHub{"/version", clitest.StatusOf(503, metav1.StatusReasonServiceUnavailable, "", "no tunnel since noon")}, bad: map[string]string{"test-get": "check c1"}, text: "no tunnel since noon"},
		"bad token":        {hub: probedHub{"/version", clitest.StatusOf(401, metav1.StatusReasonUnauthorized, "", "no")}, bad: map[string]string{"test-get": "kubectl auth whoami"}},
		"owner refuses":    {hub: probedHub{"/pods", clitest.StatusOf(403, metav1.StatusReasonForbidden, "", "the owner of the cluster allows no Secrets")}, good: []string{"test-get", "test-whoami", "test-watch"}, skipped: []string{"test-exec"}, bad: map[string]string{"test-list": "by a rule of its own or of its owner", "test-logs": "ask its owner"}},
		"cluster refuses":  {hub: probedHub{"/pods", clitest.StatusOf(403, metav1.StatusReasonForbidden, "", `pods is forbidden: User "ann" cannot list resource "pods"`)}, good: []string{"test-get", "test-whoami", "test-watch"}, skipped: []string{"test-exec"}, bad: map[string]string{"test-list": `refuses user "ann": ask its owner to bind a role`, "test-logs": "bind a role"}},
		"no more watches":  {hub: probedHub{"watch", clitest.StatusOf(429, metav1.StatusReasonTooManyRequests, "", "later")}, good: []string{"test-get", "test-whoami", "test-list", "test-logs"}, skipped: []string{"test-exec"}, bad: map[string]string{"test-watch": "proxyAPI.limits"}},
		"no upgrade there": {args: []string{"--exec=shop"}, good: []string{"test-get", "test-whoami", "test-list", "test-watch", "test-logs"}, bad: map[string]string{"test-exec": "check c1"}},
		"no such pod":      {args: []string{"--exec=shpo"}, good: []string{"test-get", "test-whoami", "test-list", "test-watch", "test-logs"}, bad: map[string]string{"test-exec": "look at the name and the namespace"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, _, err := run(t, test.hub.start(t), append([]string{"test", "c1", "-o", "json"}, test.args...)...)
			if errors.Is(err, cli.ErrNotGood) != (test.bad != nil) || err != nil && test.bad == nil {
				t.Errorf("error %v, want errNotGood: %v", err, test.bad != nil)
			}
			var list struct{ Items []probed }
			if err := json.Unmarshal([]byte(out), &list); err != nil {
				t.Fatal(err)
			}
			found := list.Items
			got := map[string]probed{}
			for _, f := range found {
				got[f.ID] = f
			}
			for _, id := range test.good {
				if !got[id].OK || got[id].Milliseconds == 0 {
					t.Errorf("%s: %+v, want good, with a time", id, got[id])
				}
			}
			for _, id := range test.skipped {
				if f := got[id]; !f.Skipped || f.Text == "" {
					t.Errorf("%s: %+v, want skipped, with a reason", id, f)
				}
			}
			for id, remedy := range test.bad {
				if f := got[id]; f.OK || f.Text == "" || !strings.Contains(f.Remedy, remedy) {
					t.Errorf("%s: %+v, want bad, and %q", id, f, remedy)
				}
			}
			if want := len(test.good) + len(test.skipped) + len(test.bad); len(found) != want {
				t.Errorf("%d findings, want %d", len(found), want)
			}
			if !strings.Contains(fmt.Sprint(found), test.text) {
				t.Errorf("%q is not in %v", test.text, found)
			}
		})
	}
}

func TestProbesAsText(t *testing.T) {
	out, _, err := run(t, probedHub{"/pods", clitest.StatusOf(403, metav1.StatusReasonForbidden, "", "not\nfor ann: User \"ann\" cannot list pods")}.start(t), "test", "c1")
	if !errors.Is(err, cli.ErrNotGood) {
		t.Errorf("error %v, want errNotGood", err)
	}
	for _, want := range []string{"√ test-get ", " ms  GET /version: ", "× test-list ", `not\u000afor ann`, "- test-exec      skipped: --exec=POD"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
	if n := strings.Count(out, "bind a role"); n != 1 {
		t.Errorf("what to do is said %d times, want once, at the end:\n%s", n, out)
	}
}
