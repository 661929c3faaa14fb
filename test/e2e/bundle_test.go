package e2e

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// TestBundle has an administrator of the hub, and a user of a cluster, write what they may read
// into a bundle. What is in any Secret of the addon, and the token of the user, is in neither.
// It disturbs nothing: it only reads.
func TestBundle(t *testing.T) {
	needNodes(t) // pods of processes have no logs at their kube-apiserver
	cluster := installed.Clusters[0]
	dir := t.TempDir()
	binary := filepath.Join(dir, "kubectl-clusterproxy")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/kubectl-clusterproxy").CombinedOutput(); err != nil {
		t.Fatalf("building the plugin: %v\n%s", err, out)
	}
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
			file := filepath.Join(dir, who+".tar.gz")
			cmd := exec.CommandContext(t.Context(), binary, "--kubeconfig="+test.kubeconfig, "bundle", cluster, "--file="+file)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			files := readBundle(t, file)
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

// readBundle returns the files of a bundle.
func readBundle(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(header.Name, "cluster-proxy-bundle/")] = string(content)
	}
}
