package addonmanager

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// constructed finds the constructors of addon-framework's controllers that a file calls.
var constructed = regexp.MustCompile(`\b[a-z]+\.New\w+Controller\(`)

// TestFrameworkControllers wants framework.go to run the controllers that addon-framework's own manager
// runs. The manager has no number of workers to set, and framework.go is written after its StartWithInformers:
// a release that adds, removes or renames a controller has to be followed there.
func TestFrameworkControllers(t *testing.T) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "open-cluster-management.io/addon-framework")
	out, err := list.Output()
	if err != nil {
		t.Fatal("finding addon-framework:", err)
	}
	calls := func(file string) []string {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := constructed.FindAllString(string(content), -1)
		slices.Sort(found)
		return slices.Compact(found)
	}
	theirs := calls(filepath.Join(strings.TrimSpace(string(out)), "pkg", "addonmanager", "base_manager.go"))
	if ours := calls("framework.go"); len(theirs) == 0 || !slices.Equal(ours, theirs) {
		t.Errorf("framework.go runs %q, addon-framework runs %q", ours, theirs)
	}
}
