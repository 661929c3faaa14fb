package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/remotecommand"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// hubKubeconfig is that of the hub's user.
func hubKubeconfig(t *testing.T) string {
	t.Helper()
	return hubKubeconfigOf(t, installed.HubToken)
}

// hubKubeconfigOf is that of a user with a token of the hub.
func hubKubeconfigOf(t *testing.T, token string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(installed.HubKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		*user = clientcmdapi.AuthInfo{Token: token}
	}
	file := filepath.Join(t.TempDir(), "hub.kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// buildPlugin returns the plugin's file, which is alone in its folder.
func buildPlugin(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "kubectl-clusterproxy")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/kubectl-clusterproxy").CombinedOutput(); err != nil {
		t.Fatalf("building the plugin: %v\n%s", err, out)
	}
	return binary
}

// wantLocalProxy runs the plugin's proxy, and kubectl without a credential through it: a read, and
// an exec, which is an upgrade.
func wantLocalProxy(t *testing.T, plugin, hub, cluster string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Timeout)
	defer cancel()
	proxy := exec.CommandContext(ctx, plugin, "--kubeconfig="+hub, "proxy", cluster, "--port=0")
	out, err := proxy.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = proxy.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("kubectl clusterproxy proxy says nothing: %v", err)
	}
	local := &rest.Config{Host: strings.Fields(line)[0]}
	pod := suite.WebPod(t, suite.Clientset(t, local))
	executors, stdin := suite.ExecutorsWithoutInput(t, local, "echo", "over and back"), ""
	if onNodes { // the other lab's pods do not notice the end of stdin
		executors, stdin = suite.Executors(t, local, "cat"), "over and back"
	}
	for name, executor := range executors {
		var got, stderr bytes.Buffer
		options := remotecommand.StreamOptions{Stdout: &got, Stderr: &stderr}
		if stdin != "" {
			options.Stdin = strings.NewReader(stdin)
		}
		if err := executor.StreamWithContext(ctx, options); err != nil || strings.TrimSpace(got.String()) != "over and back" {
			t.Errorf("exec by %s in %s through the local port: %q, %v", name, pod, got.String(), err)
		}
	}
}

// TestKubectlPlugin lives a user's first minutes: which clusters are there, who
// am I on one, does everything work, and a kubeconfig that stock kubectl takes.
// It disturbs nothing: it only reads.
func TestKubectlPlugin(t *testing.T) {
	releaseOnNodes(t)
	cluster := installed.Clusters[0]
	hub := hubKubeconfig(t)
	dir := filepath.Dir(buildPlugin(t))
	kubectl, env := installed.KubectlProgram("hub")
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), kubectl, args...)
		cmd.Env = append(append(os.Environ(), env...), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	plugin := func(args ...string) string {
		t.Helper()
		var out string
		suite.Eventually(t, "kubectl clusterproxy "+args[0], func() (err error) {
			out, err = run(append([]string{"clusterproxy", "--kubeconfig=" + hub}, args...)...)
			return err
		})
		return out
	}
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"status", cluster}, []string{cluster, "True"}},
		{[]string{"whoami", cluster}, []string{"system:serviceaccount:default:" + suite.HubUser, suite.HubUserThere}},
		{[]string{"views"}, []string{allView, fmt.Sprint(len(installed.Clusters))}},
		{[]string{"version", "--client"}, []string{"plugin"}},
		{[]string{"test", cluster, "--namespace=default", "--exec=" + suite.WebPod(t, suite.Clientset(t, installed.Direct(cluster)))},
			[]string{"√ test-get", "√ test-whoami", "√ test-list", "√ test-watch", "√ test-logs", "√ test-exec"}},
		{[]string{"check", cluster}, []string{"√ hub-api", "√ cluster-api", "√ cluster-identity", "√ cluster-stream"}},
	} {
		out := plugin(test.args...)
		for _, want := range test.want {
			if !strings.Contains(out, want) {
				t.Errorf("kubectl clusterproxy %v does not say %q:\n%s", test.args, want, out)
			}
		}
	}
	// A user who may read nothing of the addon's is told so, and that this is not good.
	if out, err := run("clusterproxy", "--kubeconfig="+hub, "version"); err == nil || !strings.Contains(out, "not known") || !strings.Contains(out, "forbidden") {
		t.Errorf("version, for who may read none: %v\n%s", err, out)
	}
	wantLocalProxy(t, filepath.Join(dir, "kubectl-clusterproxy"), hub, cluster)
	file := filepath.Join(dir, "clusters.kubeconfig")
	if err := os.WriteFile(file, []byte(plugin("kubeconfig", cluster)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := run("--kubeconfig="+file, "--context="+cluster, "get", "pods", "-n", "default"); err != nil || !strings.Contains(out, "web-") {
		t.Errorf("get pods with that kubeconfig: %v\n%s", err, out)
	}
	if err := os.WriteFile(file, []byte(plugin("kubeconfig")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := run("--kubeconfig="+file, "--context=fleet", "get", "pods", "-n", "default", "-l", "app=web")
	if err != nil {
		t.Fatalf("get pods of all clusters: %v\n%s", err, out)
	}
	want := slices.Sorted(slices.Values(installed.Clusters))
	wantSame(t, "clusters of the pods", slices.Compact(rows(t, out, "CLUSTER")), want)
}
