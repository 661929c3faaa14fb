package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"open-cluster-management.io/cluster-proxy/test/lab"
)

const files = "../../charts/cluster-proxy/files"

// promtool runs promtool, which must succeed.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	tools, err := lab.BuildPrometheus(context.WithoutCancel(t.Context()), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tools.Promtool(), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestRules checks the rules as they are, and runs their tests.
func TestRules(t *testing.T) {
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", filepath.Join(files, "rules.yaml"))
	tests, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	promtool(t, append([]string{"test", "rules"}, tests...)...)
}

// TestQueriesOfDashboards has promtool parse every query, each as what a rule records.
func TestQueriesOfDashboards(t *testing.T) {
	boards, err := filepath.Glob(filepath.Join(files, "dashboards", "*.json"))
	if err != nil || len(boards) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	type group struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	}
	var groups []group
	for _, file := range boards {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			UID    string
			Panels []struct{ Targets []struct{ Expr string } }
		}
		if err := json.Unmarshal(content, &board); err != nil {
			t.Fatalf("reading %s: %v", file, err)
		}
		g := group{Name: board.UID}
		for i, panel := range board.Panels {
			for j, target := range panel.Targets {
				g.Rules = append(g.Rules, rule{fmt.Sprintf("panel%d:query%d", i, j), strings.ReplaceAll(target.Expr, "$__rate_interval", "1m")})
			}
		}
		groups = append(groups, g)
	}
	content, err := yaml.Marshal(map[string][]group{"groups": groups})
	if err != nil {
		t.Fatal(err)
	}
	all := filepath.Join(t.TempDir(), "dashboards.yaml")
	if err := os.WriteFile(all, content, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", all)
}
