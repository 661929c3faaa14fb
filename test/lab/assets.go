package lab

import (
	"bytes"
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
	"strings"
	"time"
)

// AssetsVariable names the environment variable that points to a folder with
// ready-made programs, which are then used instead of building them.
const AssetsVariable = "LAB_ASSETS"

// Assets is a folder with the programs and files that a lab needs.
type Assets struct{ dir string }

func (a Assets) path(name string) string { return filepath.Join(a.dir, name) }

// module is a nested module from which one program is built.
type module struct {
	name, pkg, flags string
	links            []string // names by which the program acts as another one
}

const kubernetesVersion = "-X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"

var modules = []module{
	{name: "kube", pkg: ".", flags: kubernetesVersion, links: []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet", "kube-proxy"}},
	{name: "ocm", pkg: "."},
	{name: "kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok"},
	{name: "helm", pkg: "helm.sh/helm/v3/cmd/helm"},
}

// crds are OCM's definitions, by the folder that they go to.
var crds = map[string][]string{
	"crds-hub": {
		"cluster/v1/*managedclusters.crd.yaml", "cluster/v1beta2/*managedclustersets.crd.yaml", "cluster/v1beta2/*managedclustersetbindings.crd.yaml",
		"cluster/v1beta1/*placements.crd.yaml", "cluster/v1beta1/*placementdecisions.crd.yaml", "cluster/v1alpha1/*addonplacementscores.crd.yaml",
		"addon/v1alpha1/*.crd.yaml", "work/v1/*manifestworks.crd.yaml",
	},
	"crds-managed": {"work/v1/*appliedmanifestworks.crd.yaml", "cluster/v1alpha1/*clusterclaims.crd.yaml"},
}

// stages are kwok's rules for how nodes and pods come to life.
var stages = []string{
	"node/fast/node-initialize.yaml", "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
	"pod/fast/pod-ready.yaml", "pod/fast/pod-complete.yaml", "pod/fast/pod-delete.yaml",
}

// BuildAssets builds what is not yet in the cache, saying on out what it does.
// Each program appears under its name only when it is complete, so an
// interrupted build leaves nothing half-written and goes on where it was.
func BuildAssets(ctx context.Context, out io.Writer) (Assets, error) {
	if dir := os.Getenv(AssetsVariable); dir != "" {
		return Assets{dir}, checkAssets(dir)
	}
	dir, err := buildModules(ctx, "assets", modules, "with cold caches all four take a quarter of an hour", out)
	if err != nil {
		return Assets{}, err
	}
	for _, m := range modules {
		for _, link := range m.links {
			if err := os.Symlink(m.name, filepath.Join(dir, link)); err != nil && !errors.Is(err, fs.ErrExist) {
				return Assets{}, err
			}
		}
	}
	source, err := sourceDir()
	if err != nil {
		return Assets{}, err
	}
	if err := copyFiles(ctx, source, dir); err != nil {
		return Assets{}, err
	}
	return Assets{dir}, checkAssets(dir)
}

// buildModules builds those that are not yet in their folder of the cache, which
// no other version of them shares.
func buildModules(ctx context.Context, kind string, modules []module, long string, out io.Writer) (dir string, err error) {
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
	dir = filepath.Join(cache, "cluster-proxy-lab", kind+"-"+key)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	began := time.Now()
	for i, m := range modules {
		target := filepath.Join(dir, m.name)
		if _, err := os.Stat(target); err == nil {
			continue
		}
		fmt.Fprintf(out, "lab: building %s (%d of %d); %s\n", m.name, i+1, len(modules), long)
		if err := m.build(ctx, filepath.Join(source, "binaries", m.name), target, out, began); err != nil {
			return "", fmt.Errorf("building %s: %w; run the same command again, what is built stays", m.name, err)
		}
	}
	return dir, nil
}

// specsModule is built when the specs are asked for only.
var specsModule = []module{{name: "e2e", pkg: ".", flags: kubernetesVersion}}

// BuildSpecs builds Kubernetes' own e2e specs of sig api-machinery, once, and
// says where the program is: it takes the flags of e2e.test. It says on out what
// it does.
func BuildSpecs(ctx context.Context, out io.Writer) (program string, err error) {
	dir, err := buildModules(ctx, "specs", specsModule, "with cold caches it takes five minutes", out)
	return filepath.Join(dir, specsModule[0].name), err
}

func (m module) build(ctx context.Context, source, target string, out io.Writer, began time.Time) error {
	partial := fmt.Sprintf("%s.%d.partial", target, os.Getpid())
	defer os.Remove(partial)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w "+m.flags, "-o", partial, m.pkg)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
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
				fmt.Fprintf(out, "lab: still building %s, %s so far\n", m.name, time.Since(began).Round(time.Second))
			}
		}
	}()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w\n%s", err, said.String())
	}
	return os.Rename(partial, target)
}

// copyFiles takes OCM's definitions and kwok's stages out of their modules.
func copyFiles(ctx context.Context, source, dir string) error {
	api, err := moduleDir(ctx, source, "open-cluster-management.io/api")
	if err != nil {
		return err
	}
	for folder, patterns := range crds {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return err
		}
		for _, pattern := range patterns {
			files, err := filepath.Glob(filepath.Join(api, pattern))
			if err != nil || len(files) == 0 {
				return fmt.Errorf("finding %s in module open-cluster-management.io/api: %d files, %v", pattern, len(files), err)
			}
			for _, file := range files {
				if err := writeIfMissing(filepath.Join(dir, folder, filepath.Base(file)), file); err != nil {
					return err
				}
			}
		}
	}
	kwok, err := moduleDir(ctx, filepath.Join(source, "binaries", "kwok"), "sigs.k8s.io/kwok")
	if err != nil {
		return err
	}
	var files []string
	for _, stage := range stages {
		files = append(files, filepath.Join(kwok, "kustomize", "stage", stage))
	}
	return writeIfMissing(filepath.Join(dir, "kwok-stages.yaml"), files...)
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

func moduleDir(ctx context.Context, dir, module string) (string, error) {
	download := exec.CommandContext(ctx, "go", "mod", "download", module)
	download.Dir = dir
	if out, err := download.CombinedOutput(); err != nil {
		return "", fmt.Errorf("getting module %s: %w\n%s", module, err, out)
	}
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
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
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH, modules, stages, crds)
	for _, m := range modules {
		for _, pattern := range []string{"go.mod", "go.sum", "*.go"} {
			files, err := filepath.Glob(filepath.Join(binaries, m.name, pattern))
			if err != nil {
				return "", err
			}
			for _, file := range files {
				content, err := os.ReadFile(file)
				if err != nil {
					return "", err
				}
				fmt.Fprintln(sum, filepath.Base(file), len(content))
				sum.Write(content)
			}
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil))[:16], nil
}

func checkAssets(dir string) error {
	want := []string{"kwok-stages.yaml", "crds-hub", "crds-managed"}
	for _, m := range modules {
		want = append(append(want, m.name), m.links...)
	}
	for _, name := range want {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("%s is missing in %s; unset %s to build it, or remove the folder and run again", name, dir, AssetsVariable)
		}
	}
	return nil
}
