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

// runAs marks a block of a document that a test runs: as whom, and what its output has, at once
// or after a while.
var runAs = regexp.MustCompile(`^<!-- run as (\w+),(?: until it)? says (.+) -->$`)

// pageBlock is one of them.
type pageBlock struct {
	line             int
	as, says, script string
	wait             bool
}

// pageBlocks finds the marked blocks. Of the indented text behind a mark, what comes before the first
// empty line is the commands, and what is behind it their output.
func pageBlocks(text string) (blocks []pageBlock) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		mark := runAs.FindStringSubmatch(line)
		if mark == nil {
			continue
		}
		// Rights that were given a moment ago may not be known yet.
		block := pageBlock{line: i + 1, as: mark[1], says: mark[2], wait: mark[1] == "jane" || strings.Contains(line, " until it says ")}
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

// TestTutorials runs the commands of the tutorials, word by word but for names in <>, as an administrator of the hub, as one
// of a cluster, and as jane, who has nothing but her certificate of the hub. The chart has the values of the page and no
// others: on real nodes it is installed anew, as a newcomer does. A lab without nodes needs an entrypoint of its own beside them.
// It disturbs everything.
func TestTutorials(t *testing.T) {
	long.Test(t)
	releaseOnNodes(t)
	installed.NeedLab(t, "installs the chart with other values")
	cluster := installed.Clusters[0]
	managed := installed.Lab.Managed[cluster].KubeconfigPath
	kubeconfigs := map[string]string{"hub": installed.HubKubeconfig, "cluster": managed, "jane": userKubeconfig(t, "jane")}
	t.Cleanup(func() { installed.Reinstall(t) })
	var values []string
	if onNodes {
		installed.Uninstall(t)
	} else {
		for _, value := range installed.Lab.ChartValues() {
			values = append(values, "--set="+value)
		}
	}
	env := pagePrograms(t, values...)
	t.Cleanup(func() {
		for cfg, name := range map[string]string{"hub": "sam-uses-clusters", "cluster": "sam-views"} {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfigs[cfg])
			if err == nil {
				err = suite.Clientset(t, config).RbacV1().ClusterRoleBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
			}
			if err != nil {
				t.Errorf("removing what a tutorial made: %v", err)
			}
		}
	})
	names := []string{"<cluster>.kubeconfig", managed, "<cluster>", cluster, "<registry>", "quay.io/open-cluster-management", "<tag>", "lab"}
	for _, page := range []struct {
		name   string
		blocks int
	}{{"first-cluster", 10}, {"first-view", 3}, {"go-client", 1}} {
		file := "docs/tutorials/" + page.name + ".md"
		if ran := runPage(t, file, "../..", kubeconfigs, env, strings.NewReplacer(names...)); ran != page.blocks {
			t.Errorf("%s has %d marked blocks, want %d", file, ran, page.blocks)
		}
		// The proxy servers are others since the chart was installed.
		if err := installed.FindEndpoints(t.Context()); err != nil {
			t.Fatal(err)
		}
		names = append(names, "127.0.0.1:8090", installed.ProxyServer)
	}
}

// runPage runs the marked blocks of a document of this repository in a folder, with the
// kubeconfig of whom they name, and returns how many there are.
func runPage(t *testing.T, file, dir string, kubeconfigs map[string]string, env []string, names *strings.Replacer) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	blocks := pageBlocks(string(text))
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
			if says := names.Replace(block.says); err == nil && !strings.Contains(string(out), says) {
				err = fmt.Errorf("it does not say %q", says)
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

// pagePrograms returns an environment with the lab's kubectl and helm, and the plugin. helm upgrade has
// more arguments than the page says.
func pagePrograms(t *testing.T, upgrade ...string) []string {
	t.Helper()
	dir := filepath.Dir(buildPlugin(t))
	kubectl, env := installed.KubectlProgram("hub")
	if err := os.Symlink(kubectl, filepath.Join(dir, "kubectl")); err != nil {
		t.Fatal(err)
	}
	helm := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = upgrade ]; then set -- \"$@\" %s; fi\nexec %q \"$@\"\n", strings.Join(upgrade, " "), filepath.Join(filepath.Dir(kubectl), "helm"))
	if err := os.WriteFile(filepath.Join(dir, "helm"), []byte(helm), 0o755); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	return append(env, "PATH="+dir+":"+os.Getenv("PATH"), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
}
