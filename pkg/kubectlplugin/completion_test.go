package kubectlplugin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

// TestCompletion asks for completions as shells do.
func TestCompletion(t *testing.T) {
	hub := viewsHub{clusters: []string{"c1", "c2"}, views: []v1alpha1.FleetView{clitest.NewView("all", 2), clitest.NewView("prod", 1)}}
	kubeconfig := hub.start(t)
	// 4 is cobra's ShellCompDirectiveNoFileComp.
	for line, want := range map[string]string{
		"status ":             "c1 c2 :4",
		"status c1 ":          "c2 :4",
		"check ":              "c1 c2 :4",
		"kubeconfig ":         "c1 c2 :4",
		"kubeconfig --merge ": "c1 c2 :4",
		"whoami ":             "c1 c2 :4",
		"whoami c1 ":          ":4",
		"views ":              "all prod :4",
		"views prod ":         "all :4",
		"views -o ":           "name wide json yaml jsonpath= :4",
		"status --output ":    "name wide json yaml jsonpath= :4",
		"check -o ":           "json yaml jsonpath= :4",
		"whoami c1 -o ":       "json yaml jsonpath= :4",
		"view":                "views :4",
		"search --view ":      "all prod :4",
		"search cluster:":     "cluster:c1 cluster:c2 :4",
		// 6 is also NoSpace.
		"search ":                    "cluster: kind: namespace: name: status: node: label: image: :6",
		"search --count-by cluster,": "cluster,cluster cluster,kind cluster,namespace cluster,status cluster,node :6",
		"services ":                  "c1 c2 :4",
		"services c1 ":               ":4",
		"test ":                      "c1 c2 :4",
		"proxy ":                     "c1 c2 :4",
		"proxy @":                    "@all @prod :4",
		"proxy @all ":                ":4",
		"version -o ":                "json yaml jsonpath= :4",
	} {
		t.Run(line, func(t *testing.T) {
			out, errOut, err := run(t, kubeconfig, append([]string{"__completeNoDesc"}, strings.Split(line, " ")...)...)
			if err != nil {
				t.Fatalf("%v: %s", err, errOut)
			}
			if got := strings.Join(strings.Fields(out), " "); got != want {
				t.Errorf("got %q, want %q; standard error: %s", got, want, errOut)
			}
		})
	}
	t.Run("flags of the line choose the hub", func(t *testing.T) {
		other := viewsHub{clusters: []string{"other"}}.start(t)
		out, _, err := run(t, kubeconfig, "__complete", "status", "--kubeconfig="+other, "")
		if want := "other\n:4\n"; err != nil || out != want {
			t.Errorf("got %q and %v, want %q", out, err, want)
		}
	})
	t.Run("a hub that refuses", func(t *testing.T) {
		out, errOut, err := run(t, viewsHub{noCRD: true}.start(t), "__complete", "views", "")
		if want := "is not installed"; err != nil || out != ":4\n" || !strings.Contains(errOut, want) {
			t.Errorf("got %q, %q and %v, want no name, and %q on standard error", out, errOut, err, want)
		}
	})
}

// TestCompletionScript runs what kubectl finds on the PATH.
func TestCompletionScript(t *testing.T) {
	dir := t.TempDir()
	plugin := "#!/bin/sh\nprintf '<%s>' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "kubectl-clusterproxy"), []byte(plugin), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	out, err := exec.CommandContext(t.Context(), "../../cmd/kubectl-clusterproxy/kubectl_complete-clusterproxy", "status", "a b", "").CombinedOutput()
	if err != nil {
		t.Fatalf("running the script: %v\n%s", err, out)
	}
	if diff := cmp.Diff("<__complete><status><a b><>", string(out)); diff != "" {
		t.Errorf("arguments of the plugin (-want +got):\n%s", diff)
	}
}
