package e2e

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/lab"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// runAs marks a block of a README that a test runs: as whom, and what its output has, at once
// or after a while.
var runAs = regexp.MustCompile(`^<!-- run as (\w+)(?:,| until it) says (.+) -->$`)

// readmeBlock is one of them.
type readmeBlock struct {
	line             int
	as, says, script string
	wait             bool
}

// readmeBlocks finds the marked blocks. Of the indented text behind a mark, what comes before the first
// empty line is the commands, and what is behind it their output.
func readmeBlocks(text string) (blocks []readmeBlock) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		mark := runAs.FindStringSubmatch(line)
		if mark == nil {
			continue
		}
		// Rights that were given a moment ago may not be known yet.
		block := readmeBlock{line: i + 1, as: mark[1], says: mark[2], wait: mark[1] == "jane" || strings.Contains(line, " until it says ")}
		for _, command := range lines[min(i+2, len(lines)):] { // an empty line is between
			command, ok := strings.CutPrefix(command, "    ")
			if !ok {
				break
			}
			block.script += command + "\n"
		}
		blocks = append(blocks, block)
	}
	return blocks
}

// TestReadme runs the commands of README.md, word by word but for names in <>, as an administrator of the hub, as one
// of a cluster, and as jane, who has nothing but her certificate of the hub. It disturbs nothing: the chart is
// installed already, with the values of the lab, which stay.
func TestReadme(t *testing.T) {
	long.Test(t)
	releaseOnNodes(t)
	installed.NeedLab(t, "has administrators of its own")
	cluster := installed.Clusters[0]
	kubeconfigs := map[string]string{"hub": installed.HubKubeconfig, "cluster": installed.Lab.Managed[cluster].KubeconfigPath, "jane": userKubeconfig(t, "jane")}
	env := readmePrograms(t)
	t.Cleanup(func() {
		for cfg, name := range map[string]string{"hub": "jane-uses-clusters", "cluster": "jane-views"} {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfigs[cfg])
			if err == nil {
				err = suite.Clientset(t, config).RbacV1().ClusterRoleBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
			}
			if err != nil {
				t.Errorf("removing what the README made: %v", err)
			}
		}
	})
	names := strings.NewReplacer("<cluster>", cluster, "<registry>", "quay.io/open-cluster-management")
	if ran := runReadme(t, "README.md", "../..", kubeconfigs, env, names); ran < 8 {
		t.Errorf("README.md has %d marked blocks: something is wrong with the marks, or with the test", ran)
	}
}

// runReadme runs the marked blocks of a README of this repository in a folder, with the
// kubeconfig of whom they name, and returns how many there are.
func runReadme(t *testing.T, file, dir string, kubeconfigs map[string]string, env []string, names *strings.Replacer) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	blocks := readmeBlocks(string(text))
	for _, block := range blocks {
		kubeconfig, ok := kubeconfigs[block.as]
		if !ok || block.script == "" {
			t.Fatalf("%s:%d: nothing is known of %q, or there is no command", file, block.line, block.as)
		}
		run := func() error {
			cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", names.Replace(block.script))
			cmd.Dir = dir
			cmd.Env = append(append(os.Environ(), env...), "KUBECONFIG="+kubeconfig)
			out, err := cmd.CombinedOutput()
			if err == nil && !strings.Contains(string(out), block.says) {
				err = fmt.Errorf("it does not say %q", block.says)
			}
			if err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			return nil
		}
		what := fmt.Sprintf("%s:%d, as %s", file, block.line, block.as)
		if block.wait {
			suite.Eventually(t, what, run)
		} else if err := run(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	return len(blocks)
}

// userKubeconfig is that of a user of the hub with a client certificate.
func userKubeconfig(t *testing.T, user string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(installed.HubKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := lab.UserCertificate(t.Context(), installed.Hub, pkix.Name{CommonName: user})
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range config.AuthInfos {
		*info = clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	}
	file := filepath.Join(t.TempDir(), user+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// readmePrograms returns an environment with the lab's kubectl and helm, and the plugin. The
// values with which the lab has installed the chart stay.
func readmePrograms(t *testing.T) []string {
	t.Helper()
	dir := filepath.Dir(buildPlugin(t))
	kubectl, env := installed.KubectlProgram("hub")
	if err := os.Symlink(kubectl, filepath.Join(dir, "kubectl")); err != nil {
		t.Fatal(err)
	}
	helm := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = upgrade ]; then set -- \"$@\" --reuse-values; fi\nexec %q \"$@\"\n", filepath.Join(filepath.Dir(kubectl), "helm"))
	if err := os.WriteFile(filepath.Join(dir, "helm"), []byte(helm), 0o755); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	return append(env, "PATH="+dir+":"+os.Getenv("PATH"), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
}
