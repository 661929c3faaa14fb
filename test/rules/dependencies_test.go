package rules

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDependencies wants each module of go.mod to be the one that its origin published: its content is in
// go.sum, nothing stands in its place, and nothing we run switches the checksum database off.
func TestDependencies(t *testing.T) {
	top := root(t)
	list := exec.Command("go", "mod", "edit", "-json")
	list.Dir = top
	out, err := list.Output()
	if err != nil {
		t.Fatal("reading go.mod:", err)
	}
	var module struct {
		Require          []struct{ Path, Version string }
		Replace, Exclude []any
	}
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	if len(module.Require) == 0 || len(module.Replace) > 0 || len(module.Exclude) > 0 {
		t.Errorf("go.mod requires %d modules and has replacements %v and exclusions %v, want neither", len(module.Require), module.Replace, module.Exclude)
	}
	sums, err := os.ReadFile(filepath.Join(top, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	known := "\n" + string(sums)
	for _, m := range module.Require {
		if !strings.Contains(known, "\n"+m.Path+" "+m.Version+" h1:") {
			t.Errorf("go.sum does not have the content of %s %s", m.Path, m.Version)
		}
	}
	for _, file := range []string{"Makefile", ".ci", "hack"} {
		err := filepath.WalkDir(filepath.Join(top, file), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			for _, word := range []string{"GONOSUMDB", "GONOSUMCHECK", "GOSUMDB", "GOINSECURE", "GOPRIVATE"} {
				if strings.Contains(string(content), word) {
					t.Errorf("%s has %s, by which modules are taken that nobody has checked", path, word)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
