package lab

import (
	"path/filepath"
	"testing"
)

// Each program that people use has the version that its go.mod pins.
func TestClientProgramsArePinned(t *testing.T) {
	source, err := sourceDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range clientModules {
		if version, err := pinned(filepath.Join(m.source(filepath.Join(source, "binaries")), "go.mod"), m.of); err != nil || version == "" {
			t.Errorf("%s: version %q, %v", m.title, version, err)
		}
	}
	if version, err := pinned("binaries/k9s/go.mod", "example.org/none"); err == nil {
		t.Errorf("a module that is not required has version %q", version)
	}
}
