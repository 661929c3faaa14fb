package ground

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		ground Ground
		want   []string // nothing for no error
	}{
		"quiet":         {Ground{Commit: "c", Load: 1.9, Processors: 2}, nil},
		"load unknown":  {Ground{Commit: "c", Load: -1, Processors: 2}, nil},
		"busy":          {Ground{Commit: "c", Load: 2.1, Processors: 2}, []string{"2.10", "busy"}},
		"dirty":         {Ground{Commit: "c", Changed: []string{" M a.go"}, Processors: 2}, []string{"a.go", "commit c"}},
		"dirty, busy":   {Ground{Commit: "c", Changed: []string{" M a.go"}, Load: 9, Processors: 2}, []string{"a.go", "busy"}},
		"many to do it": {Ground{Commit: "c", Load: 9, Processors: 16}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.ground.Check()
			if (err == nil) != (len(test.want) == 0) {
				t.Fatalf("%v, want %q", err, test.want)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestLook(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		c := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	write := func(name string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(t.Name()+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	write("code.go")
	git("add", ".")
	git("commit", "-qm", "code")
	write("test/bench/results.txt")
	write("test/bench/api.json")
	g, err := Look(dir)
	if err != nil || len(g.Changed) > 0 || g.Commit == "" {
		t.Errorf("%+v, %v, want a commit, and no changes but figures", g, err)
	}
	write("more.go")
	if g, err = Look(dir); err != nil || len(g.Changed) != 1 || !strings.Contains(g.Changed[0], "more.go") {
		t.Errorf("changed are %q, %v, want more.go", g.Changed, err)
	}
	if _, err := Look(filepath.Join(dir, "none")); err == nil {
		t.Error("no error where there is no tree")
	}
}
