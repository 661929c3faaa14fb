package diagnose

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/tarball"
)

// canary is in everything that must not be in a bundle.
const canary = "canary7Q"

// withCanaries are credentials, as they stand in logs and fields.
var withCanaries = []string{
	"authorization: Bearer " + canary + "abcdef", "Authorization: Basic " + canary + "abcdef==", "token=" + canary, `"token": "` + canary + `"`, "password: " + canary,
	"https://user:" + canary + "@proxy.example.com:3128", "eyJ" + canary + "aaaa.eyJ" + canary + "bbbb." + canary,
	"-----BEGIN RSA PRIVATE KEY-----\n" + canary + "\n-----END RSA PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n" + canary,
	"LS0tLS1CRUdJTi" + canary + "AAAAAAAAAAAAAAAAAAAA==", "?access_token=" + canary + "&x=1", "client_secret=" + canary, "x\n  bootstrap_token: " + canary + "\ny", `{\"token\":\"` + canary + `\"}`,
}

func TestRedactText(t *testing.T) {
	for _, text := range withCanaries {
		if got := redactText("before " + text + " behind"); strings.Contains(got, canary) || !strings.Contains(got, "before ") {
			t.Errorf("of %q there is left %q", text, got)
		}
	}
	for _, text := range []string{
		"cluster c1 is not available for 5m: agent away", "https://hub.example.com:6443/api", `"Connection ended" peer="10.0.0.1:443" sent=2472`,
		"secretName: cluster-proxy-ca", "a token that no cluster knows", "basics of it", "listing secrets: forbidden", "checking the token: it has expired",
	} {
		if got := redactText(text); got != text {
			t.Errorf("%q has become %q", text, got)
		}
	}
}

func TestRedact(t *testing.T) {
	var object map[string]any
	text := `{"metadata":{"name":"x","managedFields":[{"a":"` + canary + `"}],"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"` + canary + `","note":"kept"}},
		"spec":{"env":[{"name":"HUB_TOKEN","value":"` + canary + `"},{"name":"HTTPS_PROXY","value":"http://u:` + canary + `@h:1"},{"name":"GOMEMLIMIT","value":"96MiB"},
			{"name":"CLIENT_SECRET","value":"` + canary + `"},{"name":"AWS_SECRET_ACCESS_KEY","value":"` + canary + `"},{"name":"DB_PASS","value":"` + canary + `"},{"name":"TOKEN_VALUE","value":"` + canary + `"},
			{"name":"SIGNING_KEY","value":"` + canary + `"},{"name":"DSN","value":"` + canary + `"},{"name":"POD_NAME","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],
		"httpHeaders":[{"name":"X-Auth","value":"` + canary + `"}],
		"customizedVariables":[{"name":"replicas","value":"4"},{"name":"registryAuth","value":"` + canary + `"}],
		"clusterClaims":[{"name":"kubeversion.open-cluster-management.io","value":"v1.36.1"},{"name":"id.k8s.io","value":"kept-id"}],
		"bootstrapToken":"` + canary + `","args":["--token=` + canary + `","--v=4"],"secretName":"kept-too"}}`
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(redact(object))
	if err != nil || strings.Contains(string(got), canary) {
		t.Errorf("left is %s, %v", got, err)
	}
	for _, want := range []string{"kept", "kept-too", "HTTPS_PROXY", "@h:1", `"4"`, "--v=4", "DB_PASS", "96MiB", "v1.36.1", "kept-id", "metadata.name"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("left is %s, want %q in it", got, want)
		}
	}
}

// serveBundle adds to a hub what a bundle reads.
func serveBundle(t *testing.T, serve func(path string, code int, object any)) {
	list := func(items ...any) any { return map[string]any{"kind": "List", "items": items} }
	secret := map[string]any{"annotations": map[string]any{"token": canary}}
	pod := func(name, label string) any {
		return map[string]any{"metadata": map[string]any{"name": name, "labels": map[string]any{label: "cluster-proxy"}, "annotations": secret["annotations"]},
			"status": map[string]any{"containerStatuses": []any{map[string]any{"name": "main", "restartCount": 1}}}}
	}
	const own = "open-cluster-management.io/addon"
	serve("/apis/proxy.open-cluster-management.io/v1alpha1/managedproxyconfigurations", 200, list(map[string]any{
		"metadata": map[string]any{"name": "cluster-proxy"}, "spec": map[string]any{"proxyServer": map[string]any{"namespace": "addons"}}}))
	serve("/apis/work.open-cluster-management.io/v1/manifestworks", 200, list(map[string]any{"spec": canary, "status": "applied"}))
	serve("/api/v1/namespaces/addons/pods", 200, list(pod("server-1", own), pod("of-others", "app")))
	deployment := func(name, label string) any {
		return map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"template": pod(name, label)}}
	}
	serve("/apis/apps/v1/namespaces/addons/deployments", 200, list(deployment("servers", own), deployment("of-others", "app")))
	serve("/api/v1/namespaces/addons/events", 200, list(map[string]any{"message": withCanaries[0]}))
	log := "said the server\x1b[2J\n" + strings.Join(withCanaries, "\n")
	serve("/api/v1/namespaces/addons/pods/server-1/log", 200, log)
	proxy := cli.GroupPath + "/c1/proxy"
	serve(proxy+"/api/v1/namespaces/open-cluster-management-cluster-proxy/pods", 200, list(pod("agent", own), pod("../../../../api/v1/namespaces/x/secrets", own)))
	serve(proxy+"/api/v1/namespaces/open-cluster-management-cluster-proxy/pods/agent/log", 200, log)
}

// TestBundle has credentials in everything that is read. They are in no file; what could not
// be read is said.
func TestBundle(t *testing.T) {
	kubeconfig := clitest.FakeHubWith(t, func(serve func(string, int, any)) { serveBundle(t, serve) })
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	out, errOut, err := run(t, kubeconfig, "bundle", "c1", "--file="+file)
	if err != nil || !strings.Contains(out, file) || !strings.Contains(errOut, "could not be read") {
		t.Fatalf("%v; said %q and %q", err, out, errOut)
	}
	files := tarball.Files(t, file, bundleFolder)
	for name, content := range files {
		if strings.Contains(content, canary) || strings.Contains(content, "hub-token") || strings.Contains(content, "\x1b") {
			t.Errorf("%s has a credential or a control character:\n%s", name, content)
		}
	}
	for name, want := range map[string]string{
		"README.txt": "findings.txt", "findings.txt": "√ cluster-api", "status.txt": "c1", "errors.txt": "this is no name",
		"hub/managedproxyconfigurations.yaml": "namespace: addons", "hub/manifestworks.yaml": "status: applied", "hub/namespace/pods.yaml": "server-1", "hub/namespace/deployments.yaml": "servers",
		"hub/namespace/events.yaml": removed, "hub/logs/server-1.main.log": "said the server", "hub/logs/server-1.main.previous.log": "said the server",
		"clusters/c1/namespace/pods.yaml": "agent", "clusters/c1/logs/agent.main.log": "said the server",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s is %q, want %q in it", name, files[name], want)
		}
	}
	for name, content := range files {
		if strings.Contains(name, "of-others") || strings.Contains(content, "of-others") {
			t.Errorf("%s has what somebody else runs in the namespace:\n%s", name, content)
		}
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*part*")); err != nil || len(left) > 0 {
		t.Errorf("left behind are %q, %v", left, err)
	}
}

// TestBundleBelowAPath has a hub whose URL has a path, as those of consoles and of other proxies.
func TestBundleBelowAPath(t *testing.T) {
	const path = "/k8s/clusters/hub"
	server := httptest.NewTLSServer(http.StripPrefix(path, clitest.FakeHubHandler(t, func(serve func(string, int, any)) { serveBundle(t, serve) })))
	t.Cleanup(server.Close)
	server.URL += path
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	if _, _, err := run(t, clitest.WriteKubeconfig(t, server), "bundle", "c1", "--file="+file); err != nil {
		t.Fatal(err)
	}
	files := tarball.Files(t, file, bundleFolder)
	for name, want := range map[string]string{"findings.txt": "√ cluster-api", "hub/namespace/pods.yaml": "server-1", "hub/namespace/deployments.yaml": "servers", "hub/logs/server-1.main.log": "said the server", "clusters/c1/version.yaml": "v1.35.1"} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s is %q, want %q in it; errors are\n%s", name, files[name], want, files["errors.txt"])
		}
	}
}

// TestBundleWithoutTheTunnel has a cluster that cannot be reached but with its own kubeconfig,
// by which its agents are read. One is not ready.
func TestBundleWithoutTheTunnel(t *testing.T) {
	const in = "/namespaces/open-cluster-management-cluster-proxy"
	pod := func(name, ready string) any {
		return map[string]any{"metadata": map[string]any{"name": name, "labels": map[string]any{"open-cluster-management.io/addon": "cluster-proxy"}},
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": ready}}, "containerStatuses": []any{map[string]any{"name": "main"}}}}
	}
	cluster := clitest.FakeHubWith(t, func(serve func(string, int, any)) {
		serve("/api/v1"+in+"/pods", 200, map[string]any{"kind": "List", "items": []any{pod("agent-1", "True"), pod("agent-2", "False")}})
		serve("/api/v1"+in+"/pods/agent-2/log", 200, "no such host\n"+strings.Join(withCanaries, "\n"))
	})
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	if _, _, err := run(t, clitest.FakeHub(t), "bundle", "c2", "--cluster-kubeconfig="+cluster, "--file="+file); err != nil {
		t.Fatal(err)
	}
	files := tarball.Files(t, file, bundleFolder)
	for name, want := range map[string]string{
		"findings.txt": "× cluster-agents     c2: 1 of 2 agents are not ready: agent-2", "clusters/c2/logs/agent-2.main.log": "no such host", "clusters/c2/version.yaml": "v1.36.3",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s is %q, want %q in it; errors are\n%s", name, files[name], want, files["errors.txt"])
		}
	}
	for name, content := range files {
		if strings.Contains(content, canary) {
			t.Errorf("%s has a credential:\n%s", name, content)
		}
	}
	if _, _, err := run(t, clitest.FakeHub(t), "bundle", "c1", "c2", "--cluster-kubeconfig="+cluster); err == nil || !strings.Contains(err.Error(), "name one, not 2") {
		t.Errorf("one kubeconfig for two clusters: %v, want that it is refused", err)
	}
	if _, _, err := run(t, clitest.FakeHub(t), "bundle", "c1", "--cluster-kubeconfig=/none"); err == nil {
		t.Error("a kubeconfig that is not there is accepted")
	}
}

// TestBundleIsWholeOrNotThere has a folder that cannot be written to, and a hub that is gone.
func TestBundleIsWholeOrNotThere(t *testing.T) {
	kubeconfig := clitest.FakeHub(t)
	if _, _, err := run(t, kubeconfig, "bundle", "--file="+filepath.Join(t.TempDir(), "none", "b.tar.gz")); err == nil {
		t.Error("it was written to a folder that is not there")
	}
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	if _, errOut, err := run(t, kubeconfig, "--token=other", "bundle", "--file="+file); cli.ExitStatus(err) != 2 || !strings.Contains(errOut, "could not be read") {
		t.Errorf("without any right: %v, said %q; want a bundle that says so, and status 2", err, errOut)
	}
	if files := tarball.Files(t, file, bundleFolder); !strings.Contains(files["findings.txt"], "Unauthorized") {
		t.Errorf("findings are %q, want what the hub says", files["findings.txt"])
	}
}

// TestBundleOfLittle ends as every command does when the hub does not answer, or has no such
// cluster; what could be read is kept.
func TestBundleOfLittle(t *testing.T) {
	gone := httptest.NewTLSServer(http.NotFoundHandler())
	silent := clitest.WriteKubeconfig(t, gone)
	gone.Close()
	for name, test := range map[string]struct {
		kubeconfig string
		args       []string
		status     int
		says       string
	}{
		"no hub":      {silent, nil, 2, ""},
		"no cluster":  {clitest.FakeHub(t), []string{"nope"}, 1, `no cluster "nope" that you may reach`},
		"good enough": {clitest.FakeHub(t), []string{"c1"}, 0, ""},
	} {
		file := filepath.Join(t.TempDir(), "bundle.tar.gz")
		_, errOut, err := run(t, test.kubeconfig, append([]string{"bundle", "-f", file}, test.args...)...)
		if cli.ExitStatus(err) != test.status || !strings.Contains(errOut, test.says) {
			t.Errorf("%s: status %d, %v, and it says %q; want status %d and %q", name, cli.ExitStatus(err), err, errOut, test.status, test.says)
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("%s: the bundle is not there: %v", name, err)
		}
	}
}

// TestEndlessAnswer has a cluster that never ends a log.
func TestEndlessAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for line := []byte("one more\n"); ; {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	hub, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle{says: func(string) {}, limit: 1 << 20}
	if got, err := b.fetch(t.Context(), side{client: hub}, "/log"); err != nil || len(got) != 1<<20 {
		t.Errorf("got %d bytes, %v; want no more than 1 MiB", len(got), err)
	}
}
