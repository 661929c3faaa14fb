package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// AssetsVariable names the environment variable that points to a folder with
// ready-made programs, which are then used instead of building them.
const AssetsVariable = "LAB_ASSETS"

// Assets are the programs and files that a lab needs: a folder, and one for a
// release of OCM.
type Assets struct{ dir, ocm string }

func (a Assets) path(name string) string { return filepath.Join(a.dir, name) }

// ofOCM is the path of a file of OCM's release.
func (a Assets) ofOCM(name string) string { return filepath.Join(a.ocm, name) }

// module is a nested module from which one program is built.
type module struct {
	name, pkg, flags string
	folder           string   // with its go.mod; its name if it is empty
	args             []string // of go build, and of go list
	links            []string // names by which the program acts as another one
	with             []string // folders of more sources
	files            map[string]moduleFiles
}

// moduleFiles are files of another module, by patterns.
type moduleFiles struct {
	module   string
	patterns []string
}

const kubernetesVersion = "-X k8s.io/component-base/version.gitVersion=v1.37.2 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"

// source is the folder with its go.mod, below that of all.
func (m module) source(binaries string) string {
	if m.folder == "" {
		return filepath.Join(binaries, m.name)
	}
	return filepath.Join(binaries, m.folder)
}

// controlPlane is what answers requests to a cluster.
var controlPlane = module{name: "kube", pkg: ".", flags: kubernetesVersion, links: []string{"etcd", "kube-apiserver", "kubectl"}}

// modules are what every lab runs besides OCM, in the order in which they are built.
var modules = []module{
	controlPlane,
	{name: "controllers", folder: "kube", pkg: "./controllers", flags: kubernetesVersion, links: []string{
		"kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"}},
	{name: "kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok"},
	{name: "helm", pkg: "helm.sh/helm/v3/cmd/helm"},
}

// stagesFile has kwok's stages.
const stagesFile = "kwok-stages.yaml"

// stages are kwok's rules for how nodes and pods come to life.
var stages = []string{
	"node/fast/node-initialize.yaml", "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
	"pod/fast/pod-ready.yaml", "pod/fast/pod-complete.yaml", "pod/fast/pod-delete.yaml",
}

// BuildAssets builds what is neither in the cache nor ready-made, with a release of OCM, saying
// on out what it does. Each program appears under its name only when it is
// complete, so an interrupted build leaves nothing half-written and goes on where
// it was.
func BuildAssets(ctx context.Context, ocm Release, out io.Writer) (Assets, error) {
	return buildAssets(ctx, ocm, readyFolders(), out)
}

// buildAssets looks for ready-made programs in folders, which a lab with nodes has none of:
// they would run where only the lab's own are.
func buildAssets(ctx context.Context, ocm Release, folders []string, out io.Writer) (Assets, error) {
	r, err := ocm.find()
	if err != nil {
		return Assets{}, err
	}
	if dir := os.Getenv(AssetsVariable); dir != "" {
		ready := Assets{dir: dir, ocm: filepath.Join(dir, "ocm-"+r.version)}
		return ready, ready.check()
	}
	source, err := sourceDir()
	if err != nil {
		return Assets{}, err
	}
	dir, err := folderOf("assets", modules)
	if err != nil {
		return Assets{}, err
	}
	if err := copyStages(ctx, filepath.Join(source, "binaries", "kwok"), dir); err != nil {
		return Assets{}, err
	}
	built, err := buildPrograms(ctx, modules, []string{stagesFile}, folders, out)
	if err != nil {
		return Assets{}, err
	}
	if built.ocm, err = r.build(ctx, out); err != nil {
		return Assets{}, err
	}
	return built, built.check()
}

// buildControlPlane builds what a control plane alone needs.
func buildControlPlane(ctx context.Context, out io.Writer) (Assets, error) {
	if dir := os.Getenv(AssetsVariable); dir != "" {
		ready := Assets{dir: dir}
		return ready, present(ready.paths(programsOf(controlPlane)))
	}
	return buildPrograms(ctx, []module{controlPlane}, nil, readyFolders(), out)
}

// buildPrograms builds some of the modules into the folder of all, but for what is ready-made in
// one of folders. The files are there already, and belong to what is built.
func buildPrograms(ctx context.Context, some []module, files, folders []string, out io.Writer) (Assets, error) {
	found := findReady(ctx, some, folders, out)
	dir, err := folderOf("assets", modules)
	if err != nil {
		return Assets{}, err
	}
	ready := func(m module) bool { return isReady(m, found) }
	if err := buildInto(ctx, dir, some, ready, "with cold caches all of them take ten minutes", out); err != nil {
		return Assets{}, err
	}
	names := slices.Clone(files)
	for _, m := range some {
		names = append(names, programsOf(m)...)
		if ready(m) {
			continue
		}
		for _, link := range m.links {
			if err := os.Symlink(m.name, filepath.Join(dir, link)); err != nil && !errors.Is(err, fs.ErrExist) {
				return Assets{}, err
			}
		}
	}
	if len(found) > 0 {
		if dir, err = linkReady(dir, names, found); err != nil {
			return Assets{}, fmt.Errorf("linking to ready-made programs: %w", err)
		}
	}
	return Assets{dir: dir}, nil
}

// buildModules builds those that are not ready-made into a folder of the cache, which no other
// version of them shares.
func buildModules(ctx context.Context, kind string, modules []module, ready func(module) bool, long string, out io.Writer) (dir string, err error) {
	if dir, err = folderOf(kind, modules); err != nil {
		return "", err
	}
	return dir, buildInto(ctx, dir, modules, ready, long, out)
}

// buildInto builds those that are neither ready-made nor in a folder yet. Of several processes
// one builds, and the others wait for it.
func buildInto(ctx context.Context, dir string, modules []module, ready func(module) bool, long string, out io.Writer) error {
	source, err := sourceDir()
	if err != nil {
		return err
	}
	unlock, err := lockFolder(dir)
	if err != nil {
		return fmt.Errorf("waiting for another process that builds: %w", err)
	}
	defer unlock()
	began := time.Now()
	for i, m := range modules {
		target := filepath.Join(dir, m.name)
		if _, err := os.Stat(target); err == nil || ready(m) {
			continue
		}
		fmt.Fprintf(out, "lab: building %s (%d of %d); %s\n", m.name, i+1, len(modules), long)
		if err := m.build(ctx, m.source(filepath.Join(source, "binaries")), target, out, began); err != nil {
			return fmt.Errorf("building %s: %w; run the same command again, what is built stays", m.name, err)
		}
	}
	return nil
}

// folderOf makes the folder of the cache for what is built from modules.
func folderOf(kind string, modules []module) (string, error) {
	source, err := sourceDir()
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache folder: %w; set %s to a folder with ready-made programs", err, AssetsVariable)
	}
	key, err := assetsKey(filepath.Join(source, "binaries"), modules)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "cluster-proxy-lab", kind+"-"+key)
	return dir, os.MkdirAll(dir, 0o755)
}

func (m module) build(ctx context.Context, source, target string, out io.Writer, began time.Time) error {
	return m.compile(ctx, []string{"build"}, source, target, out, began)
}

// compile runs one of go's commands that write a program.
func (m module) compile(ctx context.Context, command []string, source, target string, out io.Writer, began time.Time) error {
	partial := fmt.Sprintf("%s.%d.partial", target, os.Getpid())
	defer os.Remove(partial)
	flags := slices.Concat([]string{"-trimpath", "-ldflags", "-s -w " + m.flags}, m.args)
	cmd := exec.CommandContext(ctx, "go", slices.Concat(command, []string{"-v"}, flags, []string{"-o", partial, m.pkg})...)
	cmd.Dir, cmd.Env = source, buildEnvironment()
	said := &compiling{}
	cmd.Stdout, cmd.Stderr = said, said
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				fmt.Fprintf(out, "lab: still building %s, %s so far%s\n", m.name, time.Since(began).Round(time.Second), said.progress())
			}
		}
	}()
	if command[0] == "build" { // go test does not say what it compiles
		// Before the build: what is compiled is not counted any more.
		said.count(ctx, source, slices.Concat([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, flags, []string{m.pkg}))
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w\n%s", err, said.said())
	}
	return os.Rename(partial, target)
}

// copyStages takes kwok's stages out of its module.
func copyStages(ctx context.Context, source, dir string) error {
	kwok, err := moduleDir(ctx, source, "sigs.k8s.io/kwok")
	if err != nil {
		return err
	}
	var files []string
	for _, stage := range stages {
		files = append(files, filepath.Join(kwok, "kustomize", "stage", stage))
	}
	return writeIfMissing(filepath.Join(dir, stagesFile), files...)
}

// writeIfMissing makes one file of several YAML documents, whole or not at all.
func writeIfMissing(target string, sources ...string) error {
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	var parts []string
	for _, source := range sources {
		content, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		parts = append(parts, strings.TrimSpace(strings.TrimPrefix(string(content), "---")))
	}
	partial := fmt.Sprintf("%s.%d.partial", target, os.Getpid())
	if err := os.WriteFile(partial, []byte(strings.Join(parts, "\n---\n")+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(partial, target)
}

// moduleDir is the folder of a module as the nested module in dir has it. args are
// those that say which go.mod that has.
func moduleDir(ctx context.Context, dir, module string, args ...string) (string, error) {
	download := exec.CommandContext(ctx, "go", append(append([]string{"mod", "download"}, args...), module)...)
	download.Dir = dir
	if out, err := download.CombinedOutput(); err != nil {
		return "", fmt.Errorf("getting module %s: %w\n%s", module, err, out)
	}
	list := exec.CommandContext(ctx, "go", append(append([]string{"list", "-m", "-f", "{{.Dir}}"}, args...), module)...)
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("finding module %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// sourceDir is the folder of this package's source, where the nested modules
// are.
func sourceDir() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return "", errors.New("finding the source of the lab: it must be run from source, with go run or go test and without -trimpath")
	}
	return filepath.Dir(file), nil
}

// assetsKey changes when anything that the programs are built from does.
func assetsKey(binaries string, modules []module) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH, modules, stages)
	for _, m := range modules {
		folders := []string{m.source(binaries)}
		for _, folder := range m.with {
			folders = append(folders, filepath.Join(binaries, folder))
		}
		for _, folder := range folders {
			if err := addSources(sum, folder); err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil))[:16], nil
}

// addSources adds what a program is built from in a folder, and in those below.
func addSources(sum io.Writer, folder string) error {
	return filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains([]string{".mod", ".sum", ".go"}, filepath.Ext(file)) {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintln(sum, filepath.Base(file), len(content))
		_, err = sum.Write(content)
		return err
	})
}

// paths are those of files by their names.
func (a Assets) paths(names []string) (paths []string) {
	for _, name := range names {
		paths = append(paths, a.path(name))
	}
	return paths
}

// check looks for everything that a lab needs.
func (a Assets) check() error {
	want := []string{a.path(stagesFile), a.ofOCM(ocmProgram), a.ofOCM(hubCRDs), a.ofOCM(managedCRDs)}
	for _, m := range modules {
		want = append(want, a.paths(programsOf(m))...)
	}
	return present(want)
}

// present has an error if a file is missing.
func present(files []string) error {
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("%s is missing; unset %s to build it, or remove its folder and run again", file, AssetsVariable)
		}
	}
	return nil
}
