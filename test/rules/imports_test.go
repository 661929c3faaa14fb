package rules

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "open-cluster-management.io/cluster-proxy/"

// goPackage is what "go list -json" says of a package.
type goPackage struct {
	ImportPath   string
	Name         string
	Doc          string
	Dir          string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	Deps         []string
	Standard     bool
}

// path is the import path inside the module.
func (p goPackage) path() string { return strings.TrimPrefix(p.ImportPath, module) }

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func list(t *testing.T) []goPackage {
	t.Helper()
	command := exec.Command("go", "list", "-json=ImportPath,Name,Doc,Dir,GoFiles,TestGoFiles,XTestGoFiles,Imports,Deps,Standard", "./...")
	command.Dir = root(t)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("listing packages: %v", err)
	}
	var packages []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("reading the list of packages: %v", err)
		}
		packages = append(packages, p)
	}
}

// within reports whether path is the package or folder dir, or below it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func withinAny(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return within(path, dir) })
}

// only lists imports that just these packages of ours may have.
var only = map[string][]string{
	"crypto/x509": {"hack/release", "pkg/pki", "pkg/tunnel/tunneltest", "test"},
	"sigs.k8s.io/apiserver-network-proxy/pkg/server": {"pkg/proxyserver/konnectivity", "test"},
	"sigs.k8s.io/apiserver-network-proxy/pkg/agent":  {"test"},
	"github.com/google/cel-go":                       {"pkg/accesspolicy"},
}

// never lists what packages of ours must not depend on, even indirectly.
var never = map[string][]string{
	"pkg/tunnel":              {"sigs.k8s.io/controller-runtime", "open-cluster-management.io/addon-framework", "github.com/spf13/cobra"},
	"pkg/fleetview":           notInViews,
	"pkg/fleetview/watch":     notInViews,
	"pkg/fleetview/discovery": notInViews,
	"pkg/fleetview/fleet":     notInViews,
	"pkg/fleetview/list":      notInViews,
	"pkg/fleetview/request":   notInViews,
	"pkg/fleetindex":          append([]string{"net/http", "k8s.io/client-go"}, notInViews...),
	"pkg/accesspolicy":        notInViews,
}

// notInViews is what a view of many clusters knows nothing of: it works over any
// kube-apiservers.
var notInViews = []string{module + "pkg/tunnel", module + "pkg/agentclient", module + "pkg/carrier", "open-cluster-management.io/api"}

// apart lists packages of ours that components share, and which others of ours those
// may import.
var apart = map[string][]string{
	"pkg/accesspolicy":        {"pkg/apis"},
	"pkg/hubaccess":           nil,
	"pkg/hubaccess/authn":     {"pkg/hubaccess", "pkg/agentapi", "pkg/identity", "pkg/status"},
	"pkg/hubaccess/authz":     {"pkg/hubaccess", "pkg/apis"},
	"pkg/hubaccess/clusters":  {"pkg/accesspolicy", "pkg/apis", "pkg/identity", "pkg/pki"},
	"pkg/hubaccess/outage":    {"pkg/hubaccess"},
	"pkg/hubaccess/fairqueue": nil,
	"pkg/agentclient":         {"pkg/hubaccess", "pkg/agentapi", "pkg/connect", "pkg/dial", "pkg/httprelay", "pkg/identity", "pkg/pki", "pkg/status", "pkg/tunnel"},
}

// standardOnly lists packages that import the standard library, these modules,
// and packages of ours that are in the list too.
var standardOnly = map[string][]string{
	"pkg/carrier":           {"google.golang.org/protobuf"},
	"pkg/carrier/pool":      nil,
	"pkg/proxyapi/route":    {"google.golang.org/protobuf"},
	"pkg/proxyagent/policy": {"google.golang.org/protobuf"},
	"pkg/agentapi":          {"sigs.k8s.io/yaml", "sigs.k8s.io/apiserver-network-proxy/konnectivity-client"},
	"pkg/dial":              {"golang.org/x/sys"},
	"pkg/liveness":          nil,
	"pkg/fleetview/version": nil,
	"pkg/identity":          nil,
	"pkg/fleetview/merge":   {"k8s.io/apimachinery", "google.golang.org/protobuf", "sigs.k8s.io/yaml"},
	"pkg/fleetindex":        {"k8s.io/apimachinery", "github.com/jackc/pgx/v5", "modernc.org/sqlite"},
	"pkg/fleetindex/feed":   nil,
	"pkg/fleetindex/query":  nil,
	"pkg/fleetview/catalog": {"k8s.io/apimachinery", "k8s.io/api/apidiscovery", "k8s.io/kube-openapi"},

	"cmd/clusterprofile-credentials": nil, // so that it is small
}

var components = []string{"pkg/addonmanager", "pkg/proxyserver", "pkg/proxyapi", "pkg/proxyagent", "pkg/fleetindexer"}

func TestImports(t *testing.T) {
	for _, p := range list(t) {
		for _, imported := range p.Imports {
			for target, allowed := range only {
				if within(imported, target) && !withinAny(p.path(), allowed) {
					t.Errorf("%s imports %s, which is for %v only", p.path(), imported, allowed)
				}
			}
			checkOwn(t, p, imported)
			if modules, ok := standardOnly[p.path()]; ok && !isStandard(imported) && !withinAny(imported, modules) {
				if _, ok := standardOnly[strings.TrimPrefix(imported, module)]; !ok {
					t.Errorf("%s imports %s; it may import the standard library and %v only", p.path(), imported, modules)
				}
			}
		}
		for _, dependency := range p.Deps {
			if forbidden := never[p.path()]; withinAny(dependency, forbidden) {
				t.Errorf("%s depends on %s; run 'go mod why -vendor %s' to see how", p.path(), dependency, dependency)
			}
		}
	}
}

// checkOwn holds p to the rules about imports of our own packages.
func checkOwn(t *testing.T, p goPackage, imported string) {
	t.Helper()
	path, ours := strings.CutPrefix(imported, module)
	if !ours {
		return
	}
	if allowed, ok := apart[p.path()]; ok && !withinAny(path, allowed) {
		t.Errorf("%s imports %s; of ours it may import %v only", p.path(), path, allowed)
	}
	if within(path, "cmd") {
		t.Errorf("%s imports %s; nothing imports a command", p.path(), path)
	}
	if within(path, "test") && !within(p.path(), "test") {
		t.Errorf("%s imports %s; only tests import what is for tests", p.path(), path)
	}
	for _, component := range components {
		if within(path, component) && !within(p.path(), component) && withinAny(p.path(), components) {
			t.Errorf("%s imports %s; components meet on the wire and in the API types", p.path(), path)
		}
	}
}

// isStandard reports whether an import path is the standard library's: those
// have no dot in their first element.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func TestPackages(t *testing.T) {
	forbidden := []string{"util", "utils", "common", "constants", "constant", "helper", "helpers", "misc"}
	for _, p := range list(t) {
		if slices.Contains(forbidden, filepath.Base(p.path())) || slices.Contains(forbidden, p.Name) {
			t.Errorf("%s: package %s says nothing about what is in it; name it after what it does", p.path(), p.Name)
		}
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s: no package comment; write a doc.go that says what it is for and how it works", p.path())
		}
	}
}
