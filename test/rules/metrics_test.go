package rules

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what is made of the code in place of checking it")

// processes are those that the prefixes of metrics stand for.
var processes = []struct{ prefix, name string }{
	{"cluster_proxy_manager_", "addon manager"},
	{"cluster_proxy_server_", "proxy server"},
	{"cluster_proxy_api_", "proxy API"},
	{"cluster_proxy_agent_", "proxy agent"},
	{"cluster_proxy_index_", "fleet index"},
	{"cluster_proxy_memory_", "proxy server, proxy API, proxy agent"},
	// The names of konnectivity's agent, which its users watch.
	{"konnectivity_network_proxy_agent_", "proxy agent"},
}

// metric is what the code says about one metric.
type metric struct {
	name, kind, help, place string
	labels                  []string
	process                 int // index of processes
}

func (m metric) row() string {
	labels := "–"
	if len(m.labels) > 0 {
		labels = "`" + strings.Join(m.labels, "`, `") + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |", m.name, m.kind, labels, processes[m.process].name, m.help)
}

// TestMetrics holds METRICS.md to the code: its table has each metric that a
// process makes, and no other. A metric belongs to the registry that a component
// was given, so none is made for the whole program.
func TestMetrics(t *testing.T) {
	found := metricsOfCode(t)
	slices.SortFunc(found, func(a, b metric) int {
		return cmp.Or(cmp.Compare(a.process, b.process), cmp.Compare(a.name, b.name))
	})
	rows := make([]string, len(found))
	for i, m := range found {
		rows[i] = m.row()
		if i > 0 && found[i-1].name == m.name {
			t.Errorf("%s: %s is made at %s too; make it in one place", m.place, m.name, found[i-1].place)
		}
	}
	file := filepath.Join(root(t), "METRICS.md")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const head = "| Metric | Type | Labels | Process | Meaning |\n|---|---|---|---|---|\n"
	text, _, ok := strings.Cut(string(content), head)
	if !ok {
		t.Fatalf("METRICS.md has no table with the head\n%s", head)
	}
	want := text + head + strings.Join(rows, "\n") + "\n"
	if string(content) == want {
		return
	}
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("METRICS.md is not what the code says; run: hack/update-texts.sh\ngot\n%s\nwant\n%s", content, want)
}

// labelsOfScrapes are set by Prometheus, its operator and ACM's collector for each
// series that they take, in place of a label of the same name.
var labelsOfScrapes = []string{"job", "instance", "namespace", "pod", "container", "endpoint", "service", "node", "prometheus", "cluster", "clusterID", "tenant"}

// refusal finds the words that are not used for one in names.
var refusal = regexp.MustCompile(`(?i)refus|deni|deny|rejection`)

// TestNamesOfMetrics holds the names of metrics and labels, which are API. A refusal
// has one word in all of them.
func TestNamesOfMetrics(t *testing.T) {
	for _, m := range metricsOfCode(t) {
		if refusal.MatchString(m.name) {
			t.Errorf("%s: %s: the word for a refusal in names is rejected, as in clients_rejected_total", m.place, m.name)
		}
		for _, label := range m.labels {
			if slices.Contains(labelsOfScrapes, label) {
				t.Errorf("%s: %s has label %s, which whoever scrapes it sets; a managed cluster's is managed_cluster", m.place, m.name, label)
			}
		}
	}
}

// metricsOfCode returns the metrics that the processes make.
func metricsOfCode(t *testing.T) (found []metric) {
	t.Helper()
	syntax(t, func(path string, files *token.FileSet, file *ast.File) {
		if within(path, "pkg") && isShipped(path) {
			found = append(found, metricsOf(t, path, files, file)...)
		}
	})
	return found
}

// metricsOf returns the metrics that a file makes.
func metricsOf(t *testing.T, path string, files *token.FileSet, file *ast.File) (found []metric) {
	t.Helper()
	if imports(file, "github.com/prometheus/client_golang/prometheus/promauto") {
		t.Errorf("%s imports promauto; register metrics on a prometheus.Registerer that the caller gives", path)
	}
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		global := !ok || function.Recv == nil && function.Name.Name == "init"
		ast.Inspect(declaration, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			kind := kindOf(call)
			if kind == "" {
				return true
			}
			m := metric{kind: kind, place: files.Position(call.Pos()).String(), process: -1}
			if global {
				t.Errorf("%s: a metric of the whole program; make it where a component is made", m.place)
			}
			if err := m.read(call); err != nil {
				t.Errorf("%s: %v", m.place, err)
				return true
			}
			found = append(found, m)
			return true
		})
	}
	return found
}

// kindOf returns the type of the metric that a call makes, or nothing.
func kindOf(call *ast.CallExpr) string {
	for _, kind := range []string{"Counter", "Gauge", "Histogram", "Summary"} {
		for _, form := range []string{"", "Vec", "Func"} {
			if isSelector(call.Fun, "prometheus", "New"+kind+form) {
				return strings.ToLower(kind)
			}
		}
	}
	return ""
}

// read takes name, help and labels from a call's arguments, which must be written out.
func (m *metric) read(call *ast.CallExpr) error {
	options, ok := call.Args[0].(*ast.CompositeLit)
	if !ok {
		return fmt.Errorf("its options are not written out")
	}
	for _, element := range options.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			return fmt.Errorf("its options have no keys")
		}
		switch pair.Key.(*ast.Ident).Name {
		case "Name":
			m.name = literal(pair.Value)
		case "Help":
			m.help = literal(pair.Value)
		case "ConstLabels":
			m.labels = append(m.labels, elements(pair.Value)...)
		case "Namespace", "Subsystem":
			return fmt.Errorf("its name is in parts; write it out, so that a search finds it")
		}
	}
	if len(call.Args) > 1 {
		m.labels = append(m.labels, elements(call.Args[1])...)
	}
	m.process = slices.IndexFunc(processes, func(p struct{ prefix, name string }) bool { return strings.HasPrefix(m.name, p.prefix) })
	if m.process < 0 || m.help == "" || !strings.HasSuffix(m.help, ".") || strings.Contains(m.help, "|") {
		return fmt.Errorf("%q needs the prefix of a process, and a sentence of help", m.name)
	}
	return nil
}

// elements returns the strings of a literal: the keys of a map.
func elements(expression ast.Expr) (values []string) {
	list, ok := expression.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	for _, element := range list.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			element = pair.Key
		}
		values = append(values, literal(element))
	}
	return values
}

func literal(expression ast.Expr) string {
	basic, ok := expression.(*ast.BasicLit)
	if !ok {
		return ""
	}
	value, err := strconv.Unquote(basic.Value)
	if err != nil {
		return ""
	}
	return value
}
