package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// ClientProgram is a program that people use on clusters.
type ClientProgram struct {
	// Name is what it is called in tables, and Command what a person types.
	Name, Command string
	// Version is the one that is pinned.
	Version string
	// Path is its file; that of a script is run by the interpreter.
	Path string
}

// clientModule is a program that is built, with the module whose version go.mod pins.
type clientModule struct {
	module
	command string // that a person types
	of      string // the module whose version it has
	title   string
}

// clientModules are built when they are asked for only.
var clientModules = []clientModule{
	{module{name: "kubectl", folder: "e2e", pkg: "k8s.io/kubernetes/cmd/kubectl", flags: kubernetesVersion}, "kubectl", "k8s.io/kubernetes", "kubectl"},
	{module{name: "kubectl-older", folder: "kube-older", pkg: "k8s.io/kubernetes/cmd/kubectl", flags: olderVersion}, "kubectl", "k8s.io/kubernetes", "kubectl"},
	{module{name: "helm", pkg: "helm.sh/helm/v3/cmd/helm"}, "helm", "helm.sh/helm/v3", "helm 3"},
	{module{name: "helm4", pkg: "helm.sh/helm/v4/cmd/helm"}, "helm", "helm.sh/helm/v4", "helm 4"},
	{module{name: "stern", pkg: "github.com/stern/stern"}, "stern", "github.com/stern/stern", "stern"},
	{module{name: "k9s", pkg: "github.com/derailed/k9s", flags: "-X github.com/derailed/k9s/cmd.version=v0.50.16"}, "k9s", "github.com/derailed/k9s", "k9s"},
	{module{name: "flux", pkg: "."}, "flux", "github.com/fluxcd/pkg/ssa", "Flux' pkg/ssa"},
	{module{name: "argocd", pkg: "github.com/argoproj/argo-cd/gitops-engine/agent"}, "gitops", "github.com/argoproj/argo-cd/gitops-engine", "Argo CD's gitops-engine"},
}

// Clients in other languages, as their registries call them. Scripts that use them are in folders
// below binaries.
const (
	javascriptClient = "@kubernetes/client-node"
	pythonClient     = "python3-kubernetes"
)

// BuildClientPrograms builds and installs programs that people use on clusters, those whose name and
// version are wanted, once. It says on out what it does. The JavaScript client comes from the npm
// registry, and the Python client from Debian's package, which must be installed.
func BuildClientPrograms(ctx context.Context, wanted func(name string) bool, out io.Writer) (programs []ClientProgram, err error) {
	source, err := sourceDir()
	if err != nil {
		return nil, err
	}
	binaries := filepath.Join(source, "binaries")
	for _, m := range clientModules {
		version, err := pinned(filepath.Join(m.source(binaries), "go.mod"), m.of)
		if err != nil {
			return nil, err
		}
		if !wanted(m.title + " " + version) {
			continue
		}
		dir, err := buildModules(ctx, "clients-"+m.name, []module{m.module}, neverReady, "with cold caches all of them take twenty minutes", out)
		if err != nil {
			return nil, err
		}
		programs = append(programs, ClientProgram{m.title, m.command, version, filepath.Join(dir, m.name)})
	}
	if wanted(javascriptClient) {
		client, err := installJavaScript(ctx, filepath.Join(binaries, "javascript"), out)
		if err != nil {
			return nil, fmt.Errorf("installing the JavaScript client: %w", err)
		}
		programs = append(programs, client)
	}
	if wanted(pythonClient) {
		client, err := findPython(ctx, filepath.Join(binaries, "python"))
		if err != nil {
			return nil, err
		}
		programs = append(programs, client)
	}
	return programs, nil
}

// pinned is the version of a module that a go.mod requires.
func pinned(file, module string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(content)
	if found == nil {
		return "", fmt.Errorf("%s does not require %s", file, module)
	}
	return string(found[1]), nil
}

// installJavaScript installs the client's packages beside a script that uses it, as the lock file
// pins them.
func installJavaScript(ctx context.Context, source string, out io.Writer) (ClientProgram, error) {
	client := ClientProgram{Name: javascriptClient, Command: "client.js"}
	dir, err := folderOf("clients-javascript", nil)
	if err != nil {
		return client, err
	}
	unlock, err := lockFolder(dir)
	if err != nil {
		return client, err
	}
	defer unlock()
	same := true
	for _, name := range []string{"package.json", "package-lock.json", "client.js"} {
		content, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return client, err
		}
		before, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return client, err
		}
		same = same && (string(before) == string(content) || name == "client.js")
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
			return client, err
		}
	}
	client.Path = filepath.Join(dir, "client.js")
	installed := filepath.Join(dir, "node_modules", ".package-lock.json")
	if _, err := os.Stat(installed); err != nil || !same {
		fmt.Fprintln(out, "lab: installing the JavaScript client")
		npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		npm.Dir = dir
		if said, err := npm.CombinedOutput(); err != nil {
			return client, fmt.Errorf("%w\n%s", err, said)
		}
	}
	lock, err := os.ReadFile(installed)
	if err != nil {
		return client, err
	}
	found := regexp.MustCompile(`(?s)"node_modules/@kubernetes/client-node": \{\s+"version": "([^"]+)"`).FindSubmatch(lock)
	if found == nil {
		return client, fmt.Errorf("%s does not name the client", installed)
	}
	client.Version = string(found[1])
	return client, nil
}

// findPython finds Debian's client, of which the distribution pins the version.
func findPython(ctx context.Context, source string) (ClientProgram, error) {
	client := ClientProgram{Name: pythonClient, Command: "client.py", Path: filepath.Join(source, "client.py")}
	out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Version}", pythonClient).Output()
	if err != nil {
		return client, fmt.Errorf("finding the Python client: %w; run: apt-get install --no-install-recommends python3-kubernetes", err)
	}
	client.Version = strings.TrimSpace(string(out))
	return client, nil
}
