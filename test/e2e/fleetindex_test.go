package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// times matches what kubectl prints of times that pass.
var times = regexp.MustCompile(`\b([0-9]+[smhd])+\b`)

// TestFleetIndex installs the fleet index. Of clusters that answer it says what they say themselves, to each user what
// they may list there, and of a cluster that is away what it had. Watches that go on from its lists lose nothing when it is
// killed. It disturbs everything: all agents and the proxy API are replaced, and those of one cluster stop for a while.
func TestFleetIndex(t *testing.T) {
	long.Test(t)
	installed.NeedLab(t, "installs the chart with another value")
	installIndex(t)
	f := newFleet(t)
	users := f.tableUsers(t)
	away, near := f.clusters[0], f.clusters[1]
	anns := installed.MakeUser(t, "index-ann", append(suite.MayUseViews(),
		suite.Rule("clusterproxy.open-cluster-management.io", "fleetviews/search", []string{"get"}), suite.MayReach(suite.ReadVerbs))...)
	installed.MayOn(t, near, "index-ann", suite.Rule("", "pods", suite.ReadVerbs))
	all, live := viewOf("all", installed.HubToken), viewOf("live", installed.HubToken)

	t.Run("answers are equal", func(t *testing.T) { indexedAnswersAreEqual(t, all, live) })
	t.Run("answers are equal to users with other rights", func(t *testing.T) { indexedListsAreEqual(t, f, users) })
	t.Run("under writes", func(t *testing.T) { indexFollowsWrites(t, f) })
	t.Run("search", func(t *testing.T) { searchesFindWhatMayBeListed(t, away, near, anns) })
	t.Run("rights", func(t *testing.T) {
		wantRows(t, "of a user of one cluster", viewOf("all", anns), []string{near}, []string{away})
		cs := suite.Clientset(t, installed.Direct(near))
		if err := cs.RbacV1().ClusterRoleBindings().Delete(t.Context(), "index-ann", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		suite.Eventually(t, "no row after the right is taken away", func() error {
			if out, err := kubectlOf(t, viewOf("all", anns), "get", "pods", "-A"); err == nil || strings.Contains(out, "web-") {
				return fmt.Errorf("kubectl prints, %v:\n%s", err, out)
			}
			return nil
		})
	})
	t.Run("away", func(t *testing.T) {
		installed.StopAgents(t, away)
		suite.Eventually(t, "rows of a cluster that is away", func() error {
			out, err := kubectlOf(t, all, "get", "pods")
			if warning := "cluster " + away + " was last heard at "; err != nil || !strings.Contains(out, warning) || !strings.Contains(out, "\n"+away+" ") {
				return fmt.Errorf("kubectl prints, %v:\n%s\nwant a row of %s, and %q", err, out, away, warning)
			}
			return nil
		})
	})
	t.Run("watches", func(t *testing.T) { watchesLoseNothing(t, f, users) })
}

// installIndex installs the chart with the fleet index until the test ends.
func installIndex(t *testing.T) {
	t.Helper()
	chart := func(ctx context.Context, more ...string) error {
		return installed.Lab.InstallChart(ctx, "cluster-proxy", installed.Namespace, "../../charts/cluster-proxy", append(installed.ChartValues(), more...)...)
	}
	if err := chart(t.Context(), "fleetIndex.enabled=true", "fleetIndex.persistence.enabled=false"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeIndex(t, func() error { return chart(context.Background()) }) })
	installed.AwaitView(t, "live")
}

// removeIndex takes the index away, and waits for the agents without it: the next test would begin while they are replaced.
func removeIndex(t *testing.T, install func() error) {
	ctx := context.Background() // a test's own has ended
	if err := install(); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range installed.Clusters {
		suite.Eventually(t, cluster+" without the index", func() error {
			work, err := installed.DeployWork(ctx, cluster)
			if err == nil && strings.Contains(work, "enable-fleet-index") {
				err = errors.New("its agents are to send rows")
			}
			if err == nil {
				_, err = installed.AppliedWork(ctx, cluster)
			}
			return err
		})
	}
	installed.Settle(t)
	if onNodes {
		return // kubelets end what pods leave
	}
	for _, cluster := range append([]string{"hub"}, installed.Clusters...) {
		suite.Eventually(t, cluster+" without pods of before", func() error { return installed.Lab.PodsEnded(ctx, cluster) })
	}
}

// viewOf is a view as a user of the hub.
func viewOf(view, token string) *rest.Config { return installed.ViewEndpoints(view, token)[1].Cfg }

// kubectlOf returns what kubectl prints, Warnings too.
func kubectlOf(t *testing.T, cfg *rest.Config, args ...string) (string, error) {
	t.Helper()
	cmd, err := installed.KubectlCommand(t.Context(), "fleetindex", cfg, args...)
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// indexedAnswersAreEqual compares what kubectl prints of an indexed view with what it prints of the live one. Times that pass
// are left out. indexedListsAreEqual has the other kinds and selectors.
func indexedAnswersAreEqual(t *testing.T, all, live *rest.Config) {
	for _, args := range []string{
		"pods -A -o wide", "pods -A --chunk-size=1", "pods -l app=web", "pods -A --field-selector metadata.namespace!=default", "pods -A --show-labels", "namespaces",
	} {
		suite.Eventually(t, "the same rows by the index as live: kubectl get "+args, func() error {
			var printed [2]string
			for i, cfg := range []*rest.Config{all, live} {
				out, err := kubectlOf(t, cfg, append([]string{"get"}, strings.Fields(args)...)...)
				if err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				lines := strings.Split(times.ReplaceAllString(out, "T"), "\n")
				for n, line := range lines {
					lines[n] = strings.Join(strings.Fields(line), " ")
				}
				printed[i] = strings.Join(lines, "\n")
			}
			if printed[0] != printed[1] {
				return fmt.Errorf("indexed:\n%s\nlive:\n%s", printed[0], printed[1])
			}
			return nil
		})
	}
	// Kinds that are not indexed come from the clusters.
	wantRows(t, "of a kind that is not indexed", all, installed.Clusters, nil, "configmaps")
	if out, err := kubectlOf(t, all, "get", "pods", "-l", "app=web", "-o", "yaml"); err != nil || strings.Count(out, "containers:") < len(installed.Clusters) {
		t.Errorf("whole objects, %v:\n%s", err, out)
	}
}

// wantRows wants rows of clusters, and none of others.
func wantRows(t *testing.T, what string, cfg *rest.Config, of, none []string, kinds ...string) {
	t.Helper()
	suite.Eventually(t, "rows "+what, func() error {
		out, err := kubectlOf(t, cfg, append([]string{"get", "-A"}, append(kinds, "pods")[0])...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for _, cluster := range slices.Concat(of, none) {
			isThere, wanted := strings.Contains(out, " "+cluster+"   "), !slices.Contains(none, cluster) // a Warning has one blank behind it
			if isThere != wanted {
				return fmt.Errorf("rows of %s: %t, want %t:\n%s", cluster, isThere, wanted, out)
			}
		}
		return nil
	})
}

// searchesFindWhatMayBeListed searches as a user of all clusters, and as ann, who may list pods of one.
func searchesFindWhatMayBeListed(t *testing.T, away, near, anns string) {
	plugin := buildPlugin(t)
	search := func(token string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), plugin, append([]string{"--kubeconfig=" + hubKubeconfigOf(t, token), "search"}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for name, test := range map[string]struct {
		token string
		args  []string
		both  bool
	}{
		"a word":          {installed.HubToken, []string{"kind:pod", "label:app=web"}, true},
		"counts":          {installed.HubToken, []string{"kind:deployment", "web", "--count-by", "cluster"}, true},
		"a word, by ann":  {anns, []string{"kind:pod", "label:app=web"}, false},
		"counts, by ann":  {anns, []string{"kind:pod,deployment", "web", "--count-by", "cluster,kind"}, false},
		"a cluster alone": {installed.HubToken, []string{"kind:pod", "cluster:" + near}, false},
	} {
		suite.Eventually(t, "a search: "+name, func() error {
			out, err := search(test.token, test.args...)
			if err != nil || !strings.Contains(out, near+" ") || strings.Contains(out, away+" ") != test.both || !test.both && name == "counts, by ann" && strings.Contains(out, "Deployment") {
				return fmt.Errorf("search %q prints, %v:\n%s", test.args, err, out)
			}
			return nil
		})
	}
	if out, err := search(anns, "kind:secret"); err == nil || !strings.Contains(out, "kind:secret names nothing that is in the fleet index, which has ") {
		t.Errorf("a search for a kind that is not indexed prints, %v:\n%s", err, out)
	}
}
