package upstream

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// failingFile lists the cases that must fail, with reasons.
const failingFile = "failing.txt"

// result is how one case of the suite ended.
type result struct {
	name    string
	passed  bool
	message string
}

// readReport returns the results of a JSON report of ginkgo's, in order of names.
func readReport(content []byte) ([]result, error) {
	var reports []struct {
		SpecReports []struct {
			ContainerHierarchyTexts           []string
			LeafNodeType, LeafNodeText, State string
			Failure                           struct{ Message string }
		}
	}
	if err := json.Unmarshal(content, &reports); err != nil {
		return nil, fmt.Errorf("reading the suite's report: %w", err)
	}
	var results []result
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			if spec.LeafNodeType != "It" {
				if spec.State != "passed" {
					return nil, fmt.Errorf("%s of the suite %s: %s", spec.LeafNodeType, spec.State, spec.Failure.Message)
				}
				continue
			}
			results = append(results, result{
				name:   strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " "),
				passed: spec.State == "passed", message: strings.TrimSpace(spec.State + ": " + spec.Failure.Message),
			})
		}
	}
	slices.SortFunc(results, func(a, b result) int { return strings.Compare(a.name, b.name) })
	return results, nil
}

// expectation is how a case must fail, and why.
type expectation struct{ text, reason string }

// readFailing returns the expectations by case.
func readFailing(content string) (map[string]expectation, error) {
	_, list, _ := strings.Cut(content, "\n\n")
	failing := map[string]expectation{}
	for line := range strings.Lines(list) {
		fields := strings.Split(strings.TrimSpace(line), " | ")
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s: %q has %d fields, want name | text | reason", failingFile, line, len(fields))
		}
		failing[fields[0]] = expectation{fields[1], fields[2]}
	}
	return failing, nil
}

// judge reports each case that did not end as it must.
func judge(results []result, failing map[string]expectation) (err error) {
	ran := map[string]bool{}
	for _, r := range results {
		ran[r.name] = true
		switch want, mustFail := failing[r.name]; {
		case r.passed && mustFail:
			err = errors.Join(err, fmt.Errorf("%s passes: take it out of %s", r.name, failingFile))
		case !r.passed && (!mustFail || !strings.Contains(r.message, want.text)):
			err = errors.Join(err, fmt.Errorf("%s: %s", r.name, r.message))
		}
	}
	for name := range failing {
		if !ran[name] {
			err = errors.Join(err, fmt.Errorf("%s did not run: take it out of %s", name, failingFile))
		}
	}
	return err
}

// table is upstream.txt.
func table(release string, results []result, failing map[string]expectation) string {
	var rows strings.Builder
	passed := 0
	for _, r := range results {
		if r.passed {
			passed++
			fmt.Fprintf(&rows, "passed  %s\n", r.name)
		} else {
			fmt.Fprintf(&rows, "failed  %s\n        %s\n", r.name, cmp.Or(failing[r.name].reason, "not on purpose"))
		}
	}
	return fmt.Sprintf("The e2e suite of OCM's own cluster-proxy %s against this release, on real nodes: %d of %d cases pass.\n"+
		"Written by make conformance-upstream.\n\n%s", release, passed, len(results), rows.String())
}

func TestReport(t *testing.T) {
	got, err := readReport([]byte(`[{"SpecReports": [
		{"LeafNodeType": "BeforeSuite", "State": "passed"},
		{"ContainerHierarchyTexts": ["b", "c"], "LeafNodeType": "It", "LeafNodeText": "d", "State": "failed", "Failure": {"Message": "why"}},
		{"ContainerHierarchyTexts": ["a"], "LeafNodeType": "It", "LeafNodeText": "d", "State": "passed"}]}]`))
	want := []result{{"a d", true, "passed:"}, {"b c d", false, "failed: why"}}
	if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(result{})); diff != "" || err != nil {
		t.Errorf("the report is read as (-want +got), %v:\n%s", err, diff)
	}
	if _, err := readReport([]byte(`[{"SpecReports": [{"LeafNodeType": "BeforeSuite", "State": "failed"}]}]`)); err == nil {
		t.Error("a suite that did not begin has no error")
	}
}

func TestFailing(t *testing.T) {
	content, err := os.ReadFile(failingFile)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readFailing(string(content)); err != nil {
		t.Error(err)
	}
	if _, err := readFailing("head\n\nname | text\n"); err == nil {
		t.Error("a case without a reason is taken")
	}
}

func TestJudge(t *testing.T) {
	failing := map[string]expectation{"b": {"bad", "why"}}
	for _, tc := range []struct {
		name    string
		results []result
		wantErr string
	}{
		{"as listed", []result{{name: "a", passed: true}, {name: "b", message: "failed: bad"}}, ""},
		{"one more fails", []result{{name: "a", message: "failed: oh"}, {name: "b", message: "failed: bad"}}, "a: failed: oh"},
		{"one fails in another way", []result{{name: "b", message: "failed: oh"}}, "b: failed: oh"},
		{"one passes that is listed", []result{{name: "b", passed: true}}, "b passes: take it out of failing.txt"},
		{"one is gone that is listed", []result{{name: "a", passed: true}}, "b did not run: take it out of failing.txt"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if err := judge(tc.results, failing); err != nil {
				got = err.Error()
			}
			if got != tc.wantErr {
				t.Errorf("judge returns %q, want %q", got, tc.wantErr)
			}
		})
	}
}
