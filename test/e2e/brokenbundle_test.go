package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/tarball"
)

// TestBundleOfABrokenHub gives the proxy servers a certificate of another CA, without the name by
// which agents dial, as a restored backup does while the addon manager does not run. The bundle alone has the
// fault: which check fails, that the agents are not ready, and what both sides say of it. It
// disturbs all clusters, which cannot be reached for a while.
func TestBundleOfABrokenHub(t *testing.T) {
	releaseOnNodes(t)
	needNodes(t) // pods of processes have no logs at their kube-apiserver
	cluster := installed.Clusters[0]
	plugin := buildPlugin(t)
	breakServerCertificate(t)
	wants := []struct{ part, content string }{
		{"findings.txt", "× cluster-api "},
		{"findings.txt", "× cluster-agents "},
		{"clusters/" + cluster + "/logs/", `"TLS with the proxy server failed" err="tls: failed to verify certificate: x509: `},
		{"hub/logs/cluster-proxy-", `"TLS handshake failed"`},
		{"hub/namespace/deployments.yaml", "name: " + identity.AddonManager},
	}
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	suite.Eventually(t, "a bundle that names the fault", func() error {
		if err := os.RemoveAll(file); err != nil {
			return err
		}
		cmd := exec.CommandContext(t.Context(), plugin, "--kubeconfig="+installed.HubKubeconfig, "bundle", cluster,
			"--cluster-kubeconfig="+installed.Lab.Managed[cluster].KubeconfigPath, "--file="+file)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		files := tarball.Files(t, file, "cluster-proxy-bundle")
		for _, want := range wants {
			found := false
			for name, content := range files {
				found = found || strings.HasPrefix(name, want.part) && strings.Contains(content, want.content)
			}
			if !found {
				return fmt.Errorf("no file is called %s and has %q; findings are\n%s", want.part, want.content, files["findings.txt"])
			}
		}
		return nil
	})
}

// breakServerCertificate stops the addon manager, which would mend it, and restarts the proxy
// servers with a certificate of another CA. All is as before when the test ends.
func breakServerCertificate(t *testing.T) {
	t.Helper()
	ctx := context.Background() // the cleanup calls what is below
	managers, secrets := installed.Hub.AppsV1().Deployments(installed.Namespace), installed.Hub.CoreV1().Secrets(installed.Namespace)
	manager, err := managers.Get(ctx, identity.AddonManager, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	scale := func(replicas int32) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
		if _, err := managers.Patch(ctx, identity.AddonManager, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		suite.Eventually(t, fmt.Sprint(replicas, " addon managers"), func() (err error) {
			var now *appsv1.Deployment
			if now, err = managers.Get(ctx, identity.AddonManager, metav1.GetOptions{}); err == nil {
				// One that is ending would still mend it.
				err = errors.Join(suite.RolledOut(now), podCount(ctx, now.Spec.Selector, int(replicas)))
			}
			return err
		})
	}
	before := installed.MustHubSecret(t, "agent-server").Data
	put := func(data map[string][]byte) {
		t.Helper()
		secret, err := installed.HubSecret(ctx, "agent-server")
		if err == nil {
			secret.Data = data
			_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		// At once: agents stay with a proxy server that drains, for minutes.
		if err := installed.Hub.CoreV1().Pods(installed.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)},
			metav1.ListOptions{LabelSelector: "proxy.open-cluster-management.io/component-name=proxy-server"}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		put(before)
		scale(*manager.Spec.Replicas)
		installed.Settle(t)
		for _, cluster := range installed.Clusters {
			suite.Eventually(t, cluster+" reachable", func() error { return installed.Reachable(ctx, cluster) })
		}
	})
	scale(0)
	other := pkitest.NewCA(t, "another CA")
	files := pkitest.Issue(t, filepath.Join(t.TempDir(), "tls"), other, pki.Leaf{CommonName: "agent-server", DNSNames: []string{"localhost"}, Server: true}, other)
	broken := map[string][]byte{}
	for key, value := range before {
		broken[key] = value
	}
	for key, file := range map[string]string{"tls.crt": files.Cert, "tls.key": files.Key} {
		if broken[key], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	put(broken)
}
