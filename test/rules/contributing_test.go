package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// quotedPath matches a path of the repository in backquotes.
var quotedPath = regexp.MustCompile("`((?:cmd|pkg|charts|manifests|examples|hack|test)(?:/[A-Za-z0-9_.-]+)*)`")

// TestContributing holds CONTRIBUTING.md to the code: its package map lists every
// package, each path that it names exists, and so does each target.
func TestContributing(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root(t), "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for line := range strings.Lines(string(content)) {
		for _, match := range quotedPath.FindAllStringSubmatch(line, -1) {
			if _, err := os.Stat(filepath.Join(root(t), match[1])); err != nil {
				t.Errorf("CONTRIBUTING.md names %q, which does not exist", match[1])
			}
			if strings.HasPrefix(line, "| `") {
				rows[match[1]] = true
			}
		}
	}
	for _, p := range list(t) {
		if !rows[p.path()] {
			t.Errorf("the package map of CONTRIBUTING.md lacks %s", p.path())
		}
	}
	makefile, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile("`make ([a-z0-9-]+)`").FindAllStringSubmatch(string(content), -1) {
		if !strings.Contains(string(makefile), "\n"+match[1]+":") {
			t.Errorf("CONTRIBUTING.md names make %s, which does not exist", match[1])
		}
	}
}

// TestLongScenarios holds the Makefile's lists of tests to the tests: a name that no test has
// would leave a renamed test to both targets or to none, or a deleted one in the list.
func TestLongScenarios(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for variable, folders := range map[string][]string{
		"LONG": {"test/e2e"}, "LONG_UNIT": {"pkg/proxyapi", "pkg/fleetview"}, "API": {"test/e2e"}, "SCALED": {"test/fleet"},
	} {
		names := regexp.MustCompile(`(?m)^` + variable + ` := \^Test\((.+)\)\$\$$`).FindSubmatch(makefile)
		if names == nil {
			t.Fatalf("no names in %s of the Makefile", variable)
		}
		var tests []byte
		for _, folder := range folders {
			files, err := filepath.Glob(filepath.Join(root(t), folder, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				content, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				tests = append(tests, content...)
			}
		}
		for name := range strings.SplitSeq(string(names[1]), "|") {
			if !regexp.MustCompile(`(?m)^func Test` + name + `\(t \*testing\.T`).Match(tests) {
				t.Errorf("%s of the Makefile names %s, which no test in %v has", variable, name, folders)
			}
		}
	}
}
