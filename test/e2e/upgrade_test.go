package e2e

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/lab"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// TestPodsAreKilled kills a pod of each kind, without warning. It disturbs all
// clusters: a pod of each kind dies.
func TestPodsAreKilled(t *testing.T) {
	long.Test(t)
	needNodes(t)
	for _, k := range installed.Kinds(t, installed.Clusters[0]) {
		t.Run(k.Name, func(t *testing.T) {
			installed.UnderTraffic(t, suite.Killed, func() []suite.Disruption {
				names, err := k.Pods(t.Context())
				if err != nil || len(names) < 2 {
					t.Fatalf("pods are %v, %v; want two", names, err)
				}
				return []suite.Disruption{installed.KillOnNode(t, k, names[0])}
			})
		})
	}
}

// TestNodeDrain evicts every pod of the addon as kubectl drain does: as far as
// disruption budgets allow, again and again. The clusters of the lab have one
// node each, so it is not cordoned; new pods start there too. It disturbs all
// clusters: every pod of the addon is replaced.
func TestNodeDrain(t *testing.T) {
	needNodes(t)
	installed.UnderTraffic(t, suite.Asked, func() []suite.Disruption {
		for _, cluster := range installed.Clusters {
			for _, k := range installed.Kinds(t, cluster) {
				names, err := k.Pods(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range names {
					suite.Eventually(t, "eviction of "+name, func() error {
						err := k.Client.PolicyV1().Evictions(k.Namespace).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: k.Namespace}})
						if apierrors.IsNotFound(err) {
							err = nil // evicted with the hub's, which both clusters have
						}
						return err
					})
				}
			}
		}
		return nil
	})
}

// TestUpgrade installs the chart and image of the commit before this one, or of the one that
// E2E_UPGRADE_FROM names, and upgrades to this one's. It disturbs everything: the addon is
// older for a while.
func TestUpgrade(t *testing.T) {
	long.Test(t)
	needNodes(t)
	upgradeFrom(t, cmp.Or(os.Getenv("E2E_UPGRADE_FROM"), "HEAD~1"))
}

func upgradeFrom(t *testing.T, commit string) {
	source := filepath.Join(t.TempDir(), "source")
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	archive := exec.CommandContext(t.Context(), "sh", "-c", `git -C ../.. archive "$1" | tar -x -C "$2"`, "sh", commit, source)
	if out, err := archive.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("taking commit %s out of git: %v: %s; a shallow clone lacks it: run git fetch --unshallow, or let E2E_UPGRADE_FROM name one that is there", commit, err, out)
	}
	binary := filepath.Join(t.TempDir(), "cluster-proxy")
	if err := installed.BuildBinary(t.Context(), source, binary); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(t.TempDir(), "image.tar")
	tag := "from-" + strings.ToLower(strings.NewReplacer("~", "-", "/", "-").Replace(commit))
	if err := lab.PackAddon(binary, tag, image); err != nil {
		t.Fatal(err)
	}
	if err := installed.Lab.LoadImage(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	install := func(root string, values ...string) {
		t.Helper()
		chart := filepath.Join(root, "charts/cluster-proxy")
		values = append(valuesOf(t, chart, installed.ChartValues()), values...)
		if err := installed.Lab.InstallChart(t.Context(), "cluster-proxy", installed.Namespace, chart, values...); err != nil {
			t.Fatal(err)
		}
	}
	install(source, "tag="+tag)
	for _, cluster := range installed.Clusters {
		installed.AgentsHaveImage(t, cluster, ":"+tag)
	}
	installed.UnderTraffic(t, suite.Asked, func() []suite.Disruption {
		install("../..")
		for _, cluster := range installed.Clusters {
			installed.AgentsHaveImage(t, cluster, ":lab")
		}
		return nil
	})
}

// valuesOf leaves out the values that a chart does not have: an earlier one refuses
// those of later features.
func valuesOf(t *testing.T, chart string, values []string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]any{}
	if err := yaml.Unmarshal(text, &has); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(values, func(value string) bool {
		key, _, _ := strings.Cut(value, "=")
		parts := strings.Split(key, ".")
		section, ok := has[parts[0]]
		if below, isMap := section.(map[string]any); isMap && len(parts) > 2 {
			_, ok = below[parts[1]]
		}
		return !ok
	})
}
