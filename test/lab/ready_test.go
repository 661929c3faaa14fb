package lab

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// versions are what programs of the right versions say.
var versions = map[string]string{
	"etcd":           "etcd Version: 3.7.0\nGit SHA: none",
	"kube-apiserver": "Kubernetes v1.37.2", "kube-controller-manager": "Kubernetes v1.37.0", "kube-scheduler": "Kubernetes v1.37.2",
	"kubectl": "Client Version: v1.37.1\nKustomize Version: v5.8.1",
	"kwok":    "kwok version v0.8.0 go1.26.2 (linux/amd64)", "helm": "v3.19.4+gabc",
}

// fakes writes programs that say their version, when they are asked as they must be.
func fakes(t *testing.T, says map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range says {
		script := fmt.Sprintf("#!/bin/sh\n[ \"$*\" = %q ] && printf '%%s\\n' %q\n", strings.Join(questions[name].args, " "), text)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func with(says map[string]string, changes ...string) map[string]string {
	says = maps.Clone(says)
	for i := 0; i < len(changes); i += 2 {
		if says[changes[i]] = changes[i+1]; changes[i+1] == "" {
			delete(says, changes[i])
		}
	}
	return says
}

func TestFindReady(t *testing.T) {
	all := slices.Sorted(maps.Keys(versions))
	without := func(names ...string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(names, name) })
	}
	for name, test := range map[string]struct {
		folders []map[string]string
		want    []string
		says    string
	}{
		"no folder": {},
		"all":       {folders: []map[string]string{versions}, want: all, says: "using "},
		"another minor release": {folders: []map[string]string{with(versions, "kube-apiserver", "Kubernetes v1.34.1")}, want: without(controlPlane.links...),
			says: `it says "Kubernetes v1.34.1"`},
		"another scheduler": {folders: []map[string]string{with(versions, "kube-scheduler", "Kubernetes v1.34.1")}, want: without("kube-scheduler", "kube-controller-manager"),
			says: "building controllers all the same: kube-scheduler not found"},
		"another etcd":    {folders: []map[string]string{with(versions, "etcd", "etcd Version: 3.5.21")}, want: without(controlPlane.links...), says: "3.5.21"},
		"another kwok":    {folders: []map[string]string{with(versions, "kwok", "kwok version v0.8.01")}, want: without("kwok"), says: "v0.8.01"},
		"another helm":    {folders: []map[string]string{with(versions, "helm", "v4.0.0")}, want: without("helm"), says: "v4.0.0"},
		"something else":  {folders: []map[string]string{with(versions, "kubectl", "usage: kubectl")}, want: without(controlPlane.links...), says: "usage: kubectl"},
		"envtest's":       {folders: []map[string]string{{"etcd": versions["etcd"], "kube-apiserver": versions["kube-apiserver"], "kubectl": versions["kubectl"]}}, want: controlPlane.links, says: "using "},
		"of two folders":  {folders: []map[string]string{with(versions, "helm", "v2.1.0"), {"helm": versions["helm"]}}, want: all, says: "v2.1.0"},
		"some in another": {folders: []map[string]string{with(versions, "etcd", "", "kubectl", ""), {"etcd": versions["etcd"], "kubectl": versions["kubectl"]}}, want: all},
	} {
		t.Run(name, func(t *testing.T) {
			var folders []string
			for _, says := range test.folders {
				folders = append(folders, fakes(t, says))
			}
			var said bytes.Buffer
			got := findReady(t.Context(), modules, folders, &said)
			if diff := cmp.Diff(test.want, slices.Sorted(maps.Keys(got))); diff != "" {
				t.Errorf("found (-want +got):\n%s\n%s", diff, said.String())
			}
			if !strings.Contains(said.String(), test.says) {
				t.Errorf("said %q, want %q in it", said.String(), test.says)
			}
		})
	}
}

// TestQuestionsFitTheModules wants the versions that are accepted to be those that are built.
func TestQuestionsFitTheModules(t *testing.T) {
	for name, test := range map[string]struct{ folder, module, says string }{
		"etcd": {"kube", "go.etcd.io/etcd/server/v3 v", "etcd Version: "}, "kube-apiserver": {"kube", "k8s.io/kubernetes v", "Kubernetes v"},
		"kube-controller-manager": {"kube", "k8s.io/kubernetes v", "Kubernetes v"}, "kube-scheduler": {"kube", "k8s.io/kubernetes v", "Kubernetes v"},
		"kubectl": {"kube", "k8s.io/kubernetes v", "Client Version: v"}, "kwok": {"kwok", "sigs.k8s.io/kwok v", "kwok version v"}, "helm": {"helm", "helm.sh/helm/v3 v", "v"},
	} {
		content, err := os.ReadFile(filepath.Join("binaries", test.folder, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		_, behind, ok := strings.Cut(string(content), test.module)
		version, _, _ := strings.Cut(behind, "\n")
		version, _, _ = strings.Cut(version, " ")
		if said := test.says + version; !ok || !questions[name].fits.MatchString(said) {
			t.Errorf("%s of the version that is built says %q, which is not accepted", name, said)
		}
	}
}

// TestBuiltProgramsFit takes the programs that are built for ready-made ones: what each really
// says fits, and a lab finds all of them.
func TestBuiltProgramsFit(t *testing.T) {
	if testing.Short() {
		t.Skip("builds what a lab needs")
	}
	t.Setenv(BinVariable, "")
	t.Setenv(EnvtestVariable, "")
	built, err := BuildAssets(t.Context(), "", t.Output())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(BinVariable, built.dir)
	ready, err := BuildAssets(t.Context(), "", t.Output())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modules {
		for _, name := range programsOf(m) {
			if file, err := os.Readlink(ready.path(name)); err != nil || file != filepath.Join(built.dir, name) {
				t.Errorf("%s is %q, %v; want the one in %s", name, file, err, built.dir)
			}
		}
	}
}
