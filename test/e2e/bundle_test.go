package e2e

import (
	"encoding/base64"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/tarball"
)

// TestBundle has an administrator of the hub, and a user of a cluster, write what they may read
// into a bundle. Neither has anything of a Secret of the addon, or the token of the user.
// It disturbs nothing: it only reads.
func TestBundle(t *testing.T) {
	releaseOnNodes(t)
	needNodes(t) // pods of processes have no logs at their kube-apiserver
	cluster := installed.Clusters[0]
	binary := buildPlugin(t)
	secrets := append(secretsOf(t, installed.Hub, installed.Namespace), secretsOf(t, suite.Clientset(t, installed.Direct(cluster)), installed.AgentNamespace)...)
	if len(secrets) < 5 {
		t.Fatalf("%d values of Secrets were found: something is wrong with the test", len(secrets))
	}
	secrets = append(secrets, installed.HubToken)
	for who, test := range map[string]struct {
		kubeconfig string
		want       map[string]string // a part of a file's name, and one of its content
	}{
		"administrator": {installed.HubKubeconfig, map[string]string{
			"findings.txt": "√ hub-api", "status.txt": cluster, "precheck.txt": "pre-configuration", "hub/managedclusteraddons.yaml": cluster, "hub/managedproxyconfigurations.yaml": "cluster-proxy",
			"hub/manifestworks.yaml": "Applied", "hub/namespace/deployments.yaml": "readyReplicas", "hub/logs/cluster-proxy-addon-manager": "", "hub/logs/cluster-proxy-addon-user": "",
		}},
		"user": {hubKubeconfig(t), map[string]string{
			"findings.txt": "√ cluster-api", "errors.txt": "forbidden", "clusters/" + cluster + "/version.yaml": "gitVersion", "clusters/" + cluster + "/namespace/pods.yaml": "proxy-agent",
			"clusters/" + cluster + "/logs/": "",
		}},
	} {
		t.Run(who, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "bundle.tar.gz")
			cmd := exec.CommandContext(t.Context(), binary, "--kubeconfig="+test.kubeconfig, "bundle", cluster, "--file="+file)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			files := tarball.Files(t, file, "cluster-proxy-bundle")
			for name, content := range files {
				for _, secret := range secrets {
					if strings.Contains(content, secret) || strings.Contains(content, base64.StdEncoding.EncodeToString([]byte(secret))) {
						t.Errorf("%s has a value of a Secret, or a token", name)
					}
				}
			}
			for part, want := range test.want {
				found := false
				for name, content := range files {
					found = found || strings.HasPrefix(name, part) && strings.Contains(content, want)
				}
				if !found {
					t.Errorf("no file is called %s and has %q; errors are\n%s", part, want, files["errors.txt"])
				}
			}
		})
	}
}

// secretsOf are the private values of a namespace's Secrets. Certificates are public.
func secretsOf(t *testing.T, cs kubernetes.Interface, namespace string) (values []string) {
	t.Helper()
	list, err := cs.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range list.Items {
		for key, value := range secret.Data {
			if strings.HasSuffix(key, ".key") || key == "token" || key == "kubeconfig" {
				values = append(values, strings.TrimSpace(string(value)))
			}
		}
	}
	return values
}
