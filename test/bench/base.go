package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// source is a commit's files, which programs are built of.
type source struct {
	name string
	dir  string // "" for the folder that bench runs in
}

// today is what bench itself is built of.
var today = &source{name: "ours"}

// checkOut writes the files of a commit to a folder in dir. It does not touch the
// repository: a worktree would stay registered after a bench that is killed.
func checkOut(ctx context.Context, commit, dir string) (*source, error) {
	s := &source{name: "base", dir: filepath.Join(dir, builds, "base")}
	archive := s.dir + ".tar"
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	for _, args := range [][]string{
		{"git", "archive", "--output=" + archive, commit + "^{commit}"},
		{"tar", "-xf", archive, "-C", s.dir},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("checking out base %q: %s: %w: %s", commit, args[0], err, strings.TrimSpace(string(out)))
		}
	}
	return s, nil
}

// bases are the columns with which those of today are compared.
var bases = map[string]string{stockClient: baseStockClient, ourDialer: baseDialer}

// ratio is today's figure divided by base's, of rounds: half of them are between low
// and high.
type ratio struct{ low, median, high float64 }

// toBase compares round by round, since what else the machine does changes from one to
// the next. ok is false if there is nothing to compare.
func (all *results) toBase(row, subject, figure string) (r ratio, ok bool) {
	base := bases[subject]
	mine, theirs := all.values[row][subject][figure], all.values[row][base][figure]
	if len(mine) == 0 || len(mine) != len(theirs) || all.failed(row, subject) || all.failed(row, base) || slices.Contains(theirs, 0) {
		return ratio{}, false
	}
	var each []float64
	for i := range mine {
		each = append(each, mine[i]/theirs[i])
	}
	return ratio{quantile(each, 0.25), quantile(each, 0.5), quantile(each, 0.75)}, true
}

// printBase writes how far the rounds of each comparison agree.
func (all *results) printBase(out io.Writer) {
	for _, r := range all.done {
		for _, figure := range all.figures(r) {
			for _, subject := range all.columns() {
				if got, ok := all.toBase(r.name, subject, figure); ok {
					fmt.Fprintf(out, "%s, %s, %s: %s × base, half of the rounds between %s and %s\n",
						r.name, figure, subject, number(got.median), number(got.low), number(got.high))
				}
			}
		}
	}
}
