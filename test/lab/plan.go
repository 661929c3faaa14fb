package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// buildMinutes is how long the programs take to build on two cores with cold caches. It is no
// part of module, of which each change builds everything anew.
var buildMinutes = map[string]int{controlPlane.name: 6, "controllers": 2, "kwok": 1, "helm": 1, ocmProgram: 6}

// Building is what BuildAssets will build for a lab without nodes.
type Building struct {
	// Programs is empty if everything is there.
	Programs []string
	// Minutes is how long it takes with cold caches, and First until StartControlPlane can.
	Minutes, First int
}

// String says it in one line. It is empty if everything is there.
func (b Building) String() string {
	if len(b.Programs) == 0 {
		return ""
	}
	return fmt.Sprintf("%s will be built, once: about %d minutes on two cores with cold caches, less with warm ones", strings.Join(b.Programs, ", "), b.Minutes)
}

// Plan says what BuildAssets will build for a lab without nodes, and how long that takes.
func Plan(ctx context.Context, ocm Release) (Building, error) {
	r, err := ocm.find()
	if err != nil || os.Getenv(AssetsVariable) != "" {
		return Building{}, err
	}
	ready := findReady(ctx, modules, readyFolders(), io.Discard)
	var b Building
	for _, of := range []struct {
		kind string
		list []module
	}{{"assets", modules}, {r.kind(), []module{r.module}}} {
		dir, err := folderOf(of.kind, of.list)
		if err != nil {
			return Building{}, err
		}
		for _, m := range of.list {
			if _, err := os.Stat(filepath.Join(dir, m.name)); err == nil || isReady(m, ready) {
				continue
			}
			b.Programs, b.Minutes = append(b.Programs, m.name), b.Minutes+buildMinutes[m.name]
			if m.name == controlPlane.name {
				b.First = buildMinutes[m.name]
			}
		}
	}
	return b, nil
}

// isReady reports whether nothing needs to be built of a module.
func isReady(m module, ready map[string]string) bool {
	for _, name := range programsOf(m) {
		if ready[name] == "" {
			return false
		}
	}
	return true
}

// packagePath is a line of "go build -v": the package that is compiled now.
var packagePath = regexp.MustCompile(`^[\w.~/-]+$`)

// compiling counts the packages that go build -v says it compiles, and keeps everything else.
type compiling struct {
	mu    sync.Mutex
	done  int
	total int // 0 if it is not known
	line  bytes.Buffer
	other bytes.Buffer
}

// Write takes output of go build -v.
func (c *compiling) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range p {
		if b != '\n' {
			c.line.WriteByte(b)
			continue
		}
		if packagePath.Match(c.line.Bytes()) {
			c.done++
		} else {
			c.other.Write(append(c.line.Bytes(), '\n'))
		}
		c.line.Reset()
	}
	return len(p), nil
}

// said is what is no progress: why a build failed.
func (c *compiling) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.other.String() + c.line.String()
}

// progress is how far it is, as far as that is known.
func (c *compiling) progress() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.done == 0 && c.total == 0:
		return ""
	case c.total > c.done:
		return fmt.Sprintf(", %d of %d packages", c.done, c.total)
	case c.total > 0:
		return ", linking"
	}
	return fmt.Sprintf(", %d packages", c.done)
}

// count asks go how many packages there are to compile. It is not known if go fails, which the
// build will explain.
func (c *compiling) count(ctx context.Context, source string, args []string) {
	list := exec.CommandContext(ctx, "go", args...)
	list.Dir, list.Env = source, buildEnvironment()
	out, err := list.Output()
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total = bytes.Count(out, []byte("\n"))
}

// buildEnvironment is that of all commands of go that build programs.
func buildEnvironment() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off")
}
