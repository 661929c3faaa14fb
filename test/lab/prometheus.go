package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// prometheusModule and promtool are built when they are asked for only.
var (
	prometheusModule = module{name: "prometheus", pkg: prometheusPath + "/cmd/prometheus"}
	promtool         = module{name: "promtool", pkg: prometheusPath + "/cmd/promtool"}
)

const prometheusPath = "github.com/prometheus/prometheus"

// Prometheus is a Prometheus with its promtool.
type Prometheus struct{ dir string }

// BuildPrometheus builds both once. It says on out what it does.
func BuildPrometheus(ctx context.Context, out io.Writer) (Prometheus, error) {
	source, err := sourceDir()
	if err != nil {
		return Prometheus{}, err
	}
	source = filepath.Join(source, "binaries", prometheusModule.name)
	dir, err := folderOf("prometheus", []module{prometheusModule})
	if err != nil {
		return Prometheus{}, err
	}
	built := Prometheus{dir}
	unlock, err := lockFolder(dir)
	if err != nil {
		return Prometheus{}, fmt.Errorf("waiting for another process that builds: %w", err)
	}
	defer unlock()
	var args []string
	for _, m := range []module{prometheusModule, promtool} {
		target := filepath.Join(dir, m.name)
		if _, err := os.Stat(target); err == nil {
			continue
		}
		if args == nil {
			if args, err = withoutPlugins(ctx, source, dir); err != nil {
				return Prometheus{}, fmt.Errorf("preparing the source of Prometheus: %w", err)
			}
		}
		m.args = args
		fmt.Fprintf(out, "lab: building %s; with cold caches it takes two minutes\n", m.name)
		if err := m.build(ctx, source, target, out, time.Now()); err != nil {
			return Prometheus{}, fmt.Errorf("building %s: %w; run the same command again, what is built stays", m.name, err)
		}
	}
	return built, nil
}

// Program takes the flags of prometheus.
func (p Prometheus) Program() string { return filepath.Join(p.dir, prometheusModule.name) }

// Promtool takes those of promtool.
func (p Prometheus) Promtool() string { return filepath.Join(p.dir, promtool.name) }

// withoutPlugins returns arguments of go build by which Prometheus' package plugins
// leaves the SDKs of clouds out, and promtool Kubernetes' client: three quarters of
// what there is to build. go build replaces no files of the module cache, so the
// module is built by another path.
func withoutPlugins(ctx context.Context, source, dir string) ([]string, error) {
	cached, err := moduleDir(ctx, source, prometheusPath)
	if err != nil {
		return nil, err
	}
	link := filepath.Join(dir, "source")
	if err := os.Symlink(cached, link); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	files := map[string]string{filepath.Join(link, "plugins", "plugins.go"): filepath.Join(source, "plugins", "plugins.go")}
	theirs, err := filepath.Glob(filepath.Join(cached, "discovery", "kubernetes", "*.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range theirs {
		files[filepath.Join(link, "discovery", "kubernetes", filepath.Base(file))] = "" // there is no such file
	}
	files[filepath.Join(link, "discovery", "kubernetes", "kubernetes.go")] = filepath.Join(source, "kubernetes", "kubernetes.go")
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": files})
	if err != nil {
		return nil, err
	}
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return nil, err
	}
	sum, err := os.ReadFile(filepath.Join(source, "go.sum"))
	if err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{
		"overlay.json": replaced, "go.sum": sum,
		"go.mod": slices.Concat(mod, fmt.Appendf(nil, "\nreplace %s => %q\n", prometheusPath, link)),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return nil, err
		}
	}
	return []string{"-modfile=" + filepath.Join(dir, "go.mod"), "-overlay=" + filepath.Join(dir, "overlay.json")}, nil
}
