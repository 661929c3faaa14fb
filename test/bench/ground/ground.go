// Package ground says what figures stand on: a commit and a machine. It refuses to let a
// benchmark write figures that nobody can make again: of a commit that does not exist, or of a
// machine that does something else meanwhile. There is no way around that: a run for a glance
// writes no file.
package ground

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// mostLoad is how many processes per processor may run when a benchmark begins:
// the one that built it.
const mostLoad = 1.0

// Ground is a commit and a machine.
type Ground struct {
	Commit string
	// Changed are files that differ from the commit.
	Changed []string
	// Load is the load average of the last minute, negative if it is not known.
	Load       float64
	Processors int
}

// Look looks at the tree in dir and at the machine. Files of figures do not
// count as changed: a benchmark writes them while it runs.
func Look(dir string) (Ground, error) {
	g := Ground{Load: -1, Processors: runtime.NumCPU()}
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).Output()
		if err != nil {
			return "", fmt.Errorf("running git %s in %s: %w", args[0], dir, err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	var err error
	if g.Commit, err = git("describe", "--always", "--abbrev=12", "--exclude=*"); err != nil {
		return g, err
	}
	changed, err := git("status", "--porcelain", "--", ":/", ":(top,exclude)test/bench/*.txt", ":(top,exclude)test/bench/*.json", ":(top,exclude)test/e2e/*.txt", ":(top,exclude)test/conformance/upstream.txt")
	if err != nil {
		return g, err
	}
	if changed != "" {
		g.Changed = strings.Split(changed, "\n")
	}
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		if g.Load, err = strconv.ParseFloat(strings.Fields(string(raw))[0], 64); err != nil {
			return g, fmt.Errorf("reading /proc/loadavg: %w", err)
		}
	}
	return g, nil
}

// String is the line for the head of a file of figures.
func (g Ground) String() string {
	commit := "commit " + g.Commit
	if len(g.Changed) > 0 {
		commit += " with changes"
	}
	if g.Load < 0 {
		return commit
	}
	return fmt.Sprintf("%s, load when it began %.2f", commit, g.Load)
}

// Record writes what a run has found to a file, below a line with the date and the commit of the
// tree that the file is in. A changed tree is said there, and nothing is refused: the limits of
// such a run hold on any machine.
func Record(file, text string) error {
	g, err := Look(filepath.Dir(file))
	if err != nil {
		return err
	}
	g.Load = -1
	return os.WriteFile(file, fmt.Appendf(nil, "%s, %s\n\n%s", time.Now().UTC().Format(time.DateOnly), g, text), 0o644)
}

// Check returns an error that says why figures would mean nothing.
func (g Ground) Check() error {
	var errs []error
	if len(g.Changed) > 0 {
		errs = append(errs, fmt.Errorf("the tree differs from commit %s, so that nobody could measure the same again; commit or drop these changes first:\n%s", g.Commit, strings.Join(g.Changed, "\n")))
	}
	if most := mostLoad * float64(g.Processors); g.Load > most {
		errs = append(errs, fmt.Errorf("the machine is busy: its load is %.2f, and the figures of %d processors are those of this program up to %.2f; wait until the load is lower", g.Load, g.Processors, most))
	}
	return errors.Join(errs...)
}
