package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/lab"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// managedPrometheus scrapes itself.
const managedPrometheus = `
apiVersion: v1
kind: ConfigMap
metadata: {name: prometheus, namespace: monitoring}
data: {prometheus.yaml: "scrape_configs: [{job_name: prometheus, scrape_interval: 1s, static_configs: [{targets: ['127.0.0.1:9090']}]}]"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: prometheus, namespace: monitoring}
spec:
  selector: {matchLabels: {app: prometheus}}
  template:
    metadata: {labels: {app: prometheus}}
    spec:
      terminationGracePeriodSeconds: 1
      volumes: [{name: config, configMap: {name: prometheus}}, {name: data, emptyDir: {}}]
      containers:
      - name: prometheus
        image: IMAGE
        imagePullPolicy: Never
        args: [--config.file=/etc/prometheus/prometheus.yaml, --storage.tsdb.path=/data]
        volumeMounts: [{name: config, mountPath: /etc/prometheus}, {name: data, mountPath: /data}]
---
apiVersion: v1
kind: Service
metadata: {name: prometheus, namespace: monitoring}
spec: {selector: {app: prometheus}, ports: [{port: 9090}]}
`

// TestPrometheusExample has a Prometheus with the example's job read the one of a managed
// cluster, as an account with the example's rights. It disturbs nothing.
func TestPrometheusExample(t *testing.T) {
	long.Test(t)
	releaseOnNodes(t)
	needNodes(t)
	cluster := installed.Clusters[0]
	programs, err := lab.BuildPrometheus(context.WithoutCancel(t.Context()), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	image, err := programs.Image(filepath.Join(dir, "image.tar"))
	if err != nil {
		t.Fatal(err)
	}
	if err := installed.Lab.LoadImage(t.Context(), filepath.Join(dir, "image.tar")); err != nil {
		t.Fatal(err)
	}
	makeNamespace(t, suite.Clientset(t, installed.AdminConfig(cluster)), "monitoring")
	runKubectl(t, cluster, installed.Lab.Managed[cluster].KubeconfigPath, strings.ReplaceAll(managedPrometheus, "IMAGE", image), "apply", "-f", "-")

	makeNamespace(t, installed.Hub, "monitoring")
	accounts := installed.Hub.CoreV1().ServiceAccounts("monitoring")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(t.Context(), "prometheus", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	runKubectl(t, "hub", installed.HubKubeconfig, "", "apply", "-f", "../../examples/prometheus/rbac.yaml")
	t.Cleanup(func() {
		runKubectl(t, "hub", installed.HubKubeconfig, "", "delete", "-f", "../../examples/prometheus/rbac.yaml")
	})
	job, err := os.ReadFile("../../examples/prometheus/prometheus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	hub := &testPrometheus{t: t}
	hub.start(programs, dir, map[string]string{
		"token": token.Status.Token, "ca.crt": string(installed.HubCA),
		"prometheus.yaml": "global: {scrape_interval: 1s}\n" + strings.NewReplacer(
			"/var/run/secrets/kubernetes.io/serviceaccount/token", "token", "/etc/prometheus/cluster-proxy/ca.crt", "ca.crt",
			"[cluster1, cluster2]", fmt.Sprintf("[%s]", cluster), proxyAPIService, installed.ProxyAPI).Replace(string(job)),
	})
	suite.Eventually(t, "series of the managed cluster's Prometheus", func() error {
		for _, query := range []string{fmt.Sprintf("up{job=\"managed-clusters\", exported_job=\"\", cluster=%q} == 1", cluster), fmt.Sprintf("up{exported_job=\"prometheus\", cluster=%q} == 1", cluster)} {
			if n, err := hub.count(query); err != nil || n != 1 {
				return fmt.Errorf("%s returns %d series, %v; want 1", query, n, err)
			}
		}
		return nil
	})
}

// runKubectl runs the real kubectl with input.
func runKubectl(t *testing.T, cache, kubeconfig, input string, args ...string) {
	t.Helper()
	path, env := installed.KubectlProgram(cache)
	cmd := exec.Command(path, append(args, "--kubeconfig="+kubeconfig)...)
	cmd.Env, cmd.Stdin = append(os.Environ(), env...), strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %q: %v\n%s", args, err, out)
	}
}
