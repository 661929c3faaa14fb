package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fileName matches the name of a file of Go in a doc.go.
var fileName = regexp.MustCompile(`\b[a-z0-9_]+\.go\b`)

// TestFileLists holds the list of files at the end of a doc.go to the folder: it
// names no file that does not exist, and the doc.go names every file.
func TestFileLists(t *testing.T) {
	const head = "# Files\n"
	lists := 0
	for _, p := range list(t) {
		content, err := os.ReadFile(filepath.Join(p.Dir, "doc.go"))
		if err != nil {
			continue
		}
		_, text, ok := strings.Cut(string(content), head)
		if !ok {
			continue
		}
		lists++
		named := map[string]bool{}
		for _, name := range fileName.FindAllString(string(content), -1) {
			named[name] = true
		}
		for _, name := range fileName.FindAllString(text, -1) {
			if _, err := os.Stat(filepath.Join(p.Dir, name)); err != nil {
				t.Errorf("%s/doc.go lists %s, which does not exist", p.path(), name)
			}
		}
		entries, err := os.ReadDir(p.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			name := entry.Name()
			if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || name == "doc.go" || strings.HasPrefix(name, "zz_generated") {
				continue
			}
			if !named[name] {
				t.Errorf("%s/doc.go does not name %s; say there what it holds", p.path(), name)
			}
		}
	}
	if lists == 0 {
		t.Error("no doc.go has a list of files")
	}
}
