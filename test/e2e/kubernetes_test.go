package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"open-cluster-management.io/cluster-proxy/test/lab"
)

// Specs of Kubernetes that need no node and no webhook, and take no minutes: a
// watch of definitions and the field selectors do, for what is in other specs too.
const (
	specsFocus = `sig-api-machinery.*(Watchers|API Streaming|API chunking|Table transformation|Discovery|ServerSideApply|FieldValidation|` +
		`CustomResourceDefinition|client-go should negotiate|server version|request timeout)`
	specsSkip = `Disruptive|Flaky|Serial|Slow|Feature:|CustomResourceDefinition Watch`
	// fewestSpecs must have passed: fewer would say little.
	fewestSpecs = 40
)

// specReport is what ginkgo writes of one spec, as far as it is needed here.
type specReport struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	NumAttempts             int
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

// runSpecs gives the state of every spec that ran through a door, by name.
func runSpecs(ctx context.Context, t *testing.T, program string, door door) map[string]specReport {
	t.Helper()
	dir := t.TempDir()
	kubeconfig, report := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "report.json")
	if err := writeKubeconfig(kubeconfig, door.cfg); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, program, "--kubeconfig="+kubeconfig, "--provider=skeleton", "--ginkgo.seed=1", "--ginkgo.no-color", "--ginkgo.succinct",
		"--ginkgo.focus="+specsFocus, "--ginkgo.skip="+specsSkip, "--ginkgo.timeout=15m", "--ginkgo.json-report="+report)
	cmd.Dir = dir
	out, ran := cmd.CombinedOutput() // an error if a spec has failed, which the report has too
	content, err := os.ReadFile(report)
	if err != nil {
		t.Fatalf("running Kubernetes' specs: %v, %v\n%.2000s", ran, err, out)
	}
	var suites []struct{ SpecReports []specReport }
	if err := json.Unmarshal(content, &suites); err != nil {
		t.Fatal(err)
	}
	specs := map[string]specReport{}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			if spec.LeafNodeType == "It" && spec.NumAttempts > 0 {
				specs[strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")] = spec
			}
		}
	}
	return specs
}

// TestKubernetesSpecs runs Kubernetes' own e2e specs straight at a managed
// kube-apiserver and through the hub, and wants the same result of each. It
// writes them to the file E2E_KUBERNETES.
func TestKubernetesSpecs(t *testing.T) {
	file := os.Getenv("E2E_KUBERNETES")
	if file == "" {
		t.Skip("takes six minutes: make e2e-kubernetes")
	}
	program, err := lab.BuildSpecs(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	var doors []door
	results := map[string]map[string]specReport{}
	for _, door := range suite.doors(suite.clusters[0]) {
		if door.name == "proxy-api" {
			continue // hub-user is the same door, and harder: he is impersonated
		}
		began := time.Now()
		results[door.name] = runSpecs(t.Context(), t, program, door)
		t.Logf("%s: %d specs in %s", door.name, len(results[door.name]), time.Since(began).Round(time.Second))
		doors = append(doors, door)
	}
	straight := results[doors[0].name]
	passed := 0
	var table strings.Builder
	columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for _, door := range doors {
		fmt.Fprintf(columns, "%s\t", strings.ToUpper(door.name))
	}
	fmt.Fprintln(columns, "SPEC")
	for _, name := range slices.Sorted(maps.Keys(straight)) {
		if straight[name].State == "passed" {
			passed++
		}
		for _, door := range doors {
			spec := results[door.name][name]
			fmt.Fprintf(columns, "%s\t", spec.State)
			if spec.State != straight[name].State {
				t.Errorf("%s: %s straight, %q through %s: %.1000s", name, straight[name].State, spec.State, door.name, spec.Failure.Message)
			}
		}
		fmt.Fprintln(columns, strings.TrimPrefix(name, "[sig-api-machinery] "))
		if message := straight[name].Failure.Message; message != "" {
			t.Logf("%s: %s straight: %.300s", name, straight[name].State, message)
		}
	}
	if err := columns.Flush(); err != nil {
		t.Fatal(err)
	}
	if passed < fewestSpecs {
		t.Errorf("%d specs passed straight at the kube-apiserver, want at least %d", passed, fewestSpecs)
	}
	t.Log("\n" + table.String())
	header := "Kubernetes v1.36.3's own e2e specs of sig api-machinery, straight at a managed kube-apiserver (direct), and through the proxy API's\n" +
		"direct and aggregated doors with a token of the hub, each once. Written by make e2e-kubernetes.\n" +
		"Left out are the other sigs, all but " + specsFocus + ",\n" +
		"and " + specsSkip + ".\n\n"
	if err := os.WriteFile(file, []byte(header+table.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
