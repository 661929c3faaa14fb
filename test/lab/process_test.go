package lab

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeepRunning has a program end that is wanted once more: it runs twice.
func TestKeepRunning(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	asked := 0
	(&supervised{
		program: program{name: "echo", path: "/bin/sh", args: []string{"-c", "echo once >> " + ran}, log: filepath.Join(t.TempDir(), "log")},
		wanted:  func(context.Context) bool { asked++; return asked == 1 },
	}).keepRunning(t.Context())
	if text, err := os.ReadFile(ran); err != nil || strings.Count(string(text), "once") != 2 {
		t.Errorf("it ran with the result %q, %v; want two lines", text, err)
	}
}
