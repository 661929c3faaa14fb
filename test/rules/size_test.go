package rules

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"
)

// maxTracked is the size in bytes of the largest file that belongs into git:
// what a program can make again does not.
const maxTracked = 200 << 10

func TestTrackedFiles(t *testing.T) {
	top := root(t)
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = top
	out, err := list.Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	for name := range bytes.SplitSeq(out, []byte{0}) {
		info, err := os.Lstat(filepath.Join(top, string(name)))
		if len(name) == 0 || err != nil || !info.Mode().IsRegular() {
			continue // removed since, or no file
		}
		if info.Size() > maxTracked {
			t.Errorf("%s has %d bytes, more than %d; ignore it and let a script make it", name, info.Size(), maxTracked)
			continue
		}
		content, err := os.ReadFile(filepath.Join(top, string(name)))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(content, 0) >= 0 && path.Dir(string(name)) != "docs/pictures" {
			t.Errorf("%s is binary; git is for sources, and for pictures of documents", name)
		}
	}
}
