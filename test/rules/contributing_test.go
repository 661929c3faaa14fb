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
	content := read(t, "CONTRIBUTING.md")
	rows := map[string]bool{}
	for line := range strings.Lines(content) {
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
	makefile := read(t, "Makefile")
	for _, match := range regexp.MustCompile("`make ([a-z0-9-]+)`").FindAllStringSubmatch(content, -1) {
		if !strings.Contains(makefile, "\n"+match[1]+":") {
			t.Errorf("CONTRIBUTING.md names make %s, which does not exist", match[1])
		}
	}
}

// longMark is how a test says that it is long, and longTest a test that does.
var (
	longMark = regexp.MustCompile(`\blong\.Test\(`)
	longTest = regexp.MustCompile(`(?m)^func Test\w+\(t \*testing\.T\) \{\n\tlong\.Test\(t\)$`)
)

// TestLongTests holds long.Test to what the Makefile looks for: it is the first line of a test,
// in packages that a target of long tests runs.
func TestLongTests(t *testing.T) {
	found := 0
	sources(t, func(path string, content []byte) {
		if strings.HasPrefix(path, "test/rules/") || strings.HasPrefix(path, "test/testkit/long/") {
			return
		}
		marks := len(longMark.FindAll(content, -1))
		found += marks
		if first := len(longTest.FindAll(content, -1)); marks != first {
			t.Errorf("%s calls long.Test %d times, of which %d are long.Test(t) in the first line of a test", path, marks, first)
		}
		if marks > 0 && !strings.HasPrefix(path, "pkg/") && filepath.Dir(path) != "test/e2e" {
			t.Errorf("%s has long tests, which make test-long does not run: it has those of pkg and test/e2e", path)
		}
	})
	if found == 0 {
		t.Error("no test is long")
	}
}

// TestScaledTests holds SCALED of the Makefile to the tests.
func TestScaledTests(t *testing.T) {
	makefile := read(t, "Makefile")
	names := regexp.MustCompile(`(?m)^SCALED := \^Test\((.+)\)\$\$$`).FindStringSubmatch(makefile)
	if names == nil {
		t.Fatal("no names in SCALED of the Makefile")
	}
	functions, _ := testNames(t)
	for name := range strings.SplitSeq(names[1], "|") {
		if !functions["Test"+name] {
			t.Errorf("SCALED of the Makefile names %s, which is no test", name)
		}
	}
}
