package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeShowsTheBenchmark holds the README's table to the one that make
// bench wrote last.
func TestReadmeShowsTheBenchmark(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	results, err := os.ReadFile(filepath.Join(root(t), "test/bench/results.txt"))
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(results)) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		if rows++; !strings.Contains(string(readme), line) {
			t.Errorf("README.md does not have this row of test/bench/results.txt: copy the table\n%s", line)
		}
	}
	if rows == 0 {
		t.Error("test/bench/results.txt has no table")
	}
}
