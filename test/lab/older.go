package lab

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
)

// OlderKubernetes is the version of the kube-apiserver of clusters in Options.Older: one minor
// release before that of all others.
const OlderKubernetes = "v1.36.3"

const olderVersion = "-X k8s.io/component-base/version.gitVersion=" + OlderKubernetes + " -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"

// olderModules are built for a lab that has such a cluster only, into a folder of their own.
var olderModules = []module{{name: "kube-older", pkg: "k8s.io/kubernetes/cmd/kube-apiserver", flags: olderVersion}}

// buildOlder builds the older kube-apiserver, once, if a cluster has it, and returns the program.
func buildOlder(ctx context.Context, options Options) (string, error) {
	for _, name := range options.Older {
		if !slices.Contains(options.Clusters, name) {
			return "", fmt.Errorf("cluster %q, which is to have Kubernetes %s, is not a managed cluster of the lab", name, OlderKubernetes)
		}
	}
	if len(options.Older) == 0 {
		return "", nil
	}
	dir, err := buildModules(ctx, "older", olderModules, neverReady, "with cold caches it takes five minutes", options.Out)
	return filepath.Join(dir, olderModules[0].name), err
}
