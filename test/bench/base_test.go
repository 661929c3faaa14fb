package main

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestToBase(t *testing.T) {
	for name, test := range map[string]struct {
		today, base []float64
		failed      string // a subject
		want        ratio
		wantNone    bool
	}{
		// The machine is twice as fast in the second half.
		"a machine that changes": {today: []float64{1, 1, 2, 2}, base: []float64{2, 2, 4, 4}, want: ratio{0.5, 0.5, 0.5}},
		"one bad round":          {today: []float64{3, 3, 30, 3, 3}, base: []float64{3, 3, 3, 3, 3}, want: ratio{1, 1, 1}},
		"rounds that differ":     {today: []float64{1, 2, 3, 4, 5}, base: []float64{2, 2, 2, 2, 2}, want: ratio{1, 1.5, 2}},
		"not measured":           {today: []float64{1}, wantNone: true},
		"of other rounds":        {today: []float64{1, 1}, base: []float64{1}, wantNone: true},
		"base failed":            {today: []float64{1}, base: []float64{1}, failed: baseDialer, wantNone: true},
		"today failed":           {today: []float64{1}, base: []float64{1}, failed: ourDialer, wantNone: true},
		"too small to count":     {today: []float64{1}, base: []float64{0}, wantNone: true},
	} {
		t.Run(name, func(t *testing.T) {
			all := &results{values: map[string]map[string]map[string][]float64{}, failures: map[string]map[string]error{}}
			for _, v := range test.today {
				all.add("write", ourDialer, sample{"Gbit/s": v})
			}
			for _, v := range test.base {
				all.add("write", baseDialer, sample{"Gbit/s": v})
			}
			if test.failed != "" {
				all.fail("write", test.failed, errors.New("failed"))
			}
			got, ok := all.toBase("write", ourDialer, "Gbit/s")
			if ok == test.wantNone {
				t.Fatalf("%+v, %t, want %+v, %t", got, ok, test.want, !test.wantNone)
			}
			for _, pair := range [][2]float64{{got.low, test.want.low}, {got.median, test.want.median}, {got.high, test.want.high}} {
				if math.Abs(pair[0]-pair[1]) > 1e-9 {
					t.Errorf("%+v, want %+v", got, test.want)
				}
			}
		})
	}
}

// TestCheckOut has a commit of which nothing is left in the tree.
func TestCheckOut(t *testing.T) {
	repo := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-C", repo, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(repo, "code.go"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	write("old")
	git("add", ".")
	git("commit", "-qm", "old")
	old := git("rev-parse", "--short", "HEAD")
	write("new")
	t.Chdir(repo)
	s, err := checkOut(t.Context(), old, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(s.dir, "code.go")); err != nil || string(got) != "old" {
		t.Errorf("code.go of the base is %q, %v, want %q", got, err, "old")
	}
	if got := git("status", "--porcelain"); got != "M code.go" {
		t.Errorf("the repository is %q afterwards, want it as it was", got)
	}
	for _, commit := range []string{"0123456789", ""} {
		if _, err := checkOut(t.Context(), commit, t.TempDir()); err == nil || !strings.Contains(err.Error(), "checking out base") {
			t.Errorf("base %q: %v, want an error that names it", commit, err)
		}
	}
}
