package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// rule is a rule of Prometheus, a recording one or an alert.
type rule struct {
	Record, Alert, Expr string
	Labels, Annotations map[string]string
}

// rulesOfPrometheus are those that the chart has.
func rulesOfPrometheus(t *testing.T) (all []rule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal([]byte(read(t, "charts/cluster-proxy/files/rules.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestAlertsAreExplained wants each alert to say what it means and what to do, and to
// have its own page in docs/runbooks and a test. The chart adds the link to the page. No page and no test may
// be left of an alert that is gone.
func TestAlertsAreExplained(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root(t), "test/alerts/testdata/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests of alerts: %v", err)
	}
	tests := ""
	for _, file := range files {
		tests += read(t, filepath.Join("test/alerts/testdata", filepath.Base(file)))
	}
	runbooks, err := filepath.Glob(filepath.Join(root(t), "docs/runbooks/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, r := range rulesOfPrometheus(t) {
		if r.Alert == "" {
			continue
		}
		names[r.Alert] = true
		if refusal.MatchString(r.Alert) {
			t.Errorf("%s: the word for a refusal in names is Rejected, as in those of metrics", r.Alert)
		}
		if severity := r.Labels["severity"]; severity != "warning" && severity != "critical" {
			t.Errorf("%s has severity %q, want warning or critical", r.Alert, severity)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", r.Alert)
		}
		if got, ok := r.Annotations["runbook_url"]; ok {
			t.Errorf("%s: runbook_url is %q, want none: value monitoring.prometheusRule.runbookURL says where it leads", r.Alert, got)
		}
		if page := "docs/runbooks/" + r.Alert + ".md"; !slices.Contains(runbooks, filepath.Join(root(t), page)) {
			t.Errorf("%s does not exist", page)
		}
		if !strings.Contains(tests, `{labels: 'ALERTS{alertname="`+r.Alert+`", alertstate="firing",`) {
			t.Errorf("no test below test/alerts/testdata has %s firing", r.Alert)
		}
	}
	for _, page := range runbooks {
		if name := strings.TrimSuffix(filepath.Base(page), ".md"); !names[name] {
			t.Errorf("docs/runbooks has a page of alert %s, which does not exist", name)
		}
	}
	for _, name := range regexp.MustCompile(`alertname="(ClusterProxy\w+)"`).FindAllStringSubmatch(tests, -1) {
		if !names[name[1]] {
			t.Errorf("a test below test/alerts/testdata names alert %s, which does not exist", name[1])
		}
	}
}

// TestMetricsOfRulesExist holds rules and dashboards to METRICS.md, and to the rules
// that record. It does not look at the metrics of libraries. A managed cluster is known
// by its own label.
func TestMetricsOfRulesExist(t *testing.T) {
	metrics := read(t, "METRICS.md")
	recorded := map[string]bool{}
	texts := map[string]string{}
	for _, r := range rulesOfPrometheus(t) {
		if r.Record != "" {
			recorded[r.Record] = true
		}
		texts[r.Alert+r.Record] += r.Expr + r.Annotations["summary"] + r.Annotations["description"]
	}
	dashboards, err := filepath.Glob(filepath.Join(root(t), "charts/cluster-proxy/files/dashboards/*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range dashboards {
		texts[filepath.Base(file)] = read(t, filepath.Join("charts/cluster-proxy/files/dashboards", filepath.Base(file)))
	}
	used := ""
	ofScrape := regexp.MustCompile(`(by|on|without|ignoring) ?\([^)]*\bcluster\b|\{\{ *cluster *\}\}|labels\.cluster\b|[{,] *cluster *(=|!)`)
	for where, text := range texts {
		used += text
		for _, use := range ofScrape.FindAllString(text, -1) {
			t.Errorf("%s has %q: label cluster is of whoever scrapes, a managed cluster's is managed_cluster", where, use)
		}
		for _, name := range regexp.MustCompile(`cluster_proxy[_:][a-z0-9_:]+`).FindAllString(text, -1) {
			known := recorded[name]
			for _, suffix := range []string{"", "_bucket", "_count", "_sum"} {
				series, ok := strings.CutSuffix(name, suffix)
				known = known || ok && strings.Contains(metrics, "| `"+series+"` |")
			}
			if !known {
				t.Errorf("%s uses %s, which neither METRICS.md nor a recording rule has", where, name)
			}
		}
	}
	for name := range recorded {
		if !regexp.MustCompile(regexp.QuoteMeta(name) + `\b`).MatchString(used) {
			t.Errorf("nothing uses what %s records", name)
		}
	}
}
