package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/browser"
	"open-cluster-management.io/cluster-proxy/test/testkit/terminal"
)

// TestPictures makes the screenshots and recordings of the documents in the folder E2E_PICTURES.
// It needs Chromium, and takes the power from a cluster.
func TestPictures(t *testing.T) {
	folder := os.Getenv("E2E_PICTURES")
	if folder == "" {
		t.Skip("pictures are made by: make pictures")
	}
	browser.Needs(t)
	away, near := installed.Clusters[0], installed.Clusters[1]
	save := func(name, content string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cs := suite.Clientset(t, installed.Direct(near))
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "pictures"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "admin"}}}
	if _, err := cs.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	removeBinding(t, cs, "pictures")
	shell := newRecordedShell(t)
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	private := strings.NewReplacer(home, "~", shell.dir, "~")
	record := func(shell recordedShell, name, title string, commands ...string) {
		recording := shell.record(t, commands).Replace(private)
		save(name+".cast", recording.Asciicast(title))
		save(name+".svg", recording.SVG(title))
	}

	record(shell, "pass", "Access to one cluster for four hours",
		"kubectl clusterproxy pass create ann --clusters "+near+" --for 4h --cluster-role view -o ann.kubeconfig",
		"kubectl --kubeconfig ann.kubeconfig --context "+near+" get pods",
		"kubectl --kubeconfig ann.kubeconfig --context "+near+" delete deployment web",
		"kubectl clusterproxy pass list",
		"kubectl clusterproxy pass revoke ann")

	// The demo starts a lab of its own.
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	record(recordedShell{root, shell.env}, "demo", "The demo", "make demo ONCE=1")

	page := openPage(t)
	installIndex(t)
	page.Press("s")
	page.WaitFor(`document.activeElement.id === 'query'`)
	page.Type("label:app=web")
	suite.Eventually(t, "objects of both clusters on the page", func() error {
		page.Press("Enter")
		page.WaitFor(`document.getElementById('search').getAttribute('aria-busy') === 'false'`)
		for _, cluster := range []string{away, near} {
			if got := page.Eval(`document.getElementById('hits').textContent`); !strings.Contains(got, cluster) {
				return fmt.Errorf("none of %s in %s", cluster, got)
			}
		}
		return nil
	})
	save("search.png", page.Screenshot(1280, 480))
	page.Eval(`document.getElementById('tab-clusters').click()`)
	installed.StopAgents(t, away)
	suite.Eventually(t, away+" away on the page", func() error {
		if got := page.Eval(`document.querySelectorAll('tr[data-state="away"]').length`); got != "1" {
			return fmt.Errorf("%s clusters are away", got)
		}
		return nil
	})
	save("page.png", page.Screenshot(1280, 260))
	record(shell, "check", "A cluster that does not answer",
		"kubectl clusterproxy status",
		"kubectl --context fleet get pods",
		"kubectl clusterproxy check "+away)
}

// openPage opens the hub's page as a user who may reach every cluster.
func openPage(t *testing.T) *browser.Page {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, installed.HubCA, 0o644); err != nil {
		t.Fatal(err)
	}
	page := browser.Open(t, ca)
	page.Go("https://" + installed.ProxyAPI + "/ui/")
	page.WaitFor(`document.activeElement?.id === 'token'`)
	page.Type(installed.HubToken)
	page.Press("Enter")
	page.WaitFor(`document.querySelectorAll('tr[data-state="available"]').length >= 2`)
	return page
}

// recordedShell is where commands are recorded: a folder, and an environment with kubectl and the plugin.
type recordedShell struct {
	dir string
	env []string
}

// newRecordedShell is one of an administrator of the hub, with the contexts that the plugin makes.
func newRecordedShell(t *testing.T) recordedShell {
	t.Helper()
	s := recordedShell{t.TempDir(), append(os.Environ(), pagePrograms(t)...)}
	content, err := os.ReadFile(installed.HubKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(s.dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s.env = append(s.env, "KUBECONFIG="+kubeconfig, "PS1=$ ", "MAKELEVEL=", "MAKEFLAGS=")
	if out, err := s.bash(t.Context(), "-c", "kubectl clusterproxy kubeconfig --merge").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return s
}

func (s recordedShell) bash(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", append([]string{"--norc", "--noprofile"}, args...)...)
	cmd.Dir, cmd.Env = s.dir, s.env
	return cmd
}

// record types commands, each after the one before has ended.
func (s recordedShell) record(t *testing.T, commands []string) terminal.Recording {
	t.Helper()
	shell, err := terminal.Start(s.bash(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	defer shell.Close()
	await := func(text string) {
		if screen, err := shell.Await(t.Context(), 5*suite.Timeout, text); err != nil {
			t.Fatalf("%v:\n%s", err, screen)
		}
	}
	await("$")
	for _, command := range commands {
		if err := shell.Type(command + "\r"); err != nil {
			t.Fatal(err)
		}
		await("$ " + command)
		await("\n$\n")
	}
	return shell.Recording()
}
