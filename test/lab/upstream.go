package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// UpstreamVersion is the release of OCM's own cluster-proxy that users come from.
const UpstreamVersion = "v0.10.0"

// Upstream is OCM's own cluster-proxy.
type Upstream struct {
	// Source is the folder of its module, with its chart.
	Source string

	programs string
}

// upstreamPrograms are those of its image, by the package that each is built from.
// The proxy server and the proxy agent are konnectivity's.
var upstreamPrograms = map[string]string{
	"manager":       "open-cluster-management.io/cluster-proxy/cmd/addon-manager",
	"agent":         "open-cluster-management.io/cluster-proxy/cmd/addon-agent",
	"cluster-proxy": "open-cluster-management.io/cluster-proxy/cmd/cluster-proxy",
	"proxy-server":  "sigs.k8s.io/apiserver-network-proxy/cmd/server",
	"proxy-agent":   "sigs.k8s.io/apiserver-network-proxy/cmd/agent",
}

// BuildUpstream builds the programs of OCM's own cluster-proxy, once. It says on
// out what it does.
func BuildUpstream(ctx context.Context, out io.Writer) (Upstream, error) {
	source, u, err := findUpstream(ctx)
	if err != nil {
		return Upstream{}, err
	}
	began := time.Now()
	for name, pkg := range upstreamPrograms {
		target := filepath.Join(u.programs, name)
		if _, err := os.Stat(target); err == nil {
			continue
		}
		fmt.Fprintf(out, "lab: building %s of OCM's own cluster-proxy; with cold caches all five take five minutes\n", name)
		if err := (module{name: name, pkg: pkg}).build(ctx, source, target, out, began); err != nil {
			return Upstream{}, fmt.Errorf("building %s of OCM's own cluster-proxy: %w", name, err)
		}
	}
	return u, nil
}

// findUpstream returns the nested module that names the release, and the release
// without its programs.
func findUpstream(ctx context.Context) (source string, u Upstream, err error) {
	const folder = "upstream"
	if source, err = sourceDir(); err != nil {
		return "", Upstream{}, err
	}
	source = filepath.Join(source, "binaries", folder)
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", Upstream{}, fmt.Errorf("finding the cache folder: %w", err)
	}
	key, err := assetsKey(filepath.Dir(source), []module{{name: folder}})
	if err != nil {
		return "", Upstream{}, err
	}
	u.programs = filepath.Join(cache, "cluster-proxy-lab", folder+"-"+key)
	if err := os.MkdirAll(u.programs, 0o755); err != nil {
		return "", Upstream{}, err
	}
	u.Source, err = moduleDir(ctx, source, "open-cluster-management.io/cluster-proxy")
	return source, u, err
}

// Chart is the folder of its chart.
func (u Upstream) Chart() string { return filepath.Join(u.Source, "charts/cluster-proxy") }
