package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// specsModule is built when the specs are asked for only, and with it programs of
// the same module.
var (
	specsModule   = []module{{name: "e2e", pkg: ".", flags: kubernetesVersion}}
	specsPrograms = []module{
		{name: "agnhost", pkg: "k8s.io/kubernetes/test/images/agnhost", flags: "-X main.Version=" + agnhostVersion},
		{name: "kubectl", pkg: "k8s.io/kubernetes/cmd/kubectl", flags: kubernetesVersion},
	}
)

// Specs are Kubernetes' own e2e specs with what they need.
type Specs struct{ dir string }

// BuildSpecs builds Kubernetes' own e2e specs, kubectl and the program of the
// specs' pods, once. It says on out what it does.
func BuildSpecs(ctx context.Context, out io.Writer) (Specs, error) {
	dir, err := buildModules(ctx, "specs", specsModule, neverReady, "with cold caches it takes five minutes, and two more programs as long", out)
	if err != nil {
		return Specs{}, err
	}
	source, err := sourceDir()
	if err != nil {
		return Specs{}, err
	}
	began := time.Now()
	for _, m := range specsPrograms {
		target := filepath.Join(dir, m.name)
		if _, err := os.Stat(target); err == nil {
			continue
		}
		fmt.Fprintf(out, "lab: building %s\n", m.name)
		if err := m.build(ctx, filepath.Join(source, "binaries", specsModule[0].name), target, out, began); err != nil {
			return Specs{}, fmt.Errorf("building %s: %w; run the same command again, what is built stays", m.name, err)
		}
	}
	return Specs{dir}, nil
}

// Program takes the flags of e2e.test.
func (s Specs) Program() string { return filepath.Join(s.dir, "e2e") }

// Kubectl is the plain program, which a spec copies into a pod.
func (s Specs) Kubectl() string { return filepath.Join(s.dir, "kubectl") }

// specsRegistry stands for the registries of the specs' images.
const specsRegistry = "lab.local/specs"

const agnhostVersion = "2.66.1"

// SpecsRepositories is a file for KUBE_TEST_REPO_LIST, by which specs take their
// images from those that Images packs.
const SpecsRepositories = "promoterE2eRegistry: " + specsRegistry + "\ngcRegistry: " + specsRegistry + "\n"
