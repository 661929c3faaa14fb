//go:build linux

package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// nodeModules are built for a lab with nodes only, into a folder of their own.
var nodeModules = []module{{name: "coredns", pkg: "."}}

// buildNodeAssets builds CoreDNS, once, and labnode, which Go's own cache makes
// quick.
func buildNodeAssets(ctx context.Context, out io.Writer) (Assets, error) {
	source, err := sourceDir()
	if err != nil {
		return Assets{}, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return Assets{}, fmt.Errorf("finding the cache folder: %w", err)
	}
	key, err := assetsKey(filepath.Join(source, "binaries"), nodeModules)
	if err != nil {
		return Assets{}, err
	}
	dir := filepath.Join(cache, "cluster-proxy-lab", "nodes-"+key)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Assets{}, err
	}
	began := time.Now()
	for _, m := range nodeModules {
		target := filepath.Join(dir, m.name)
		if _, err := os.Stat(target); err == nil {
			continue
		}
		fmt.Fprintf(out, "lab: building %s; with cold caches it takes three minutes\n", m.name)
		if err := m.build(ctx, filepath.Join(source, "binaries", m.name), target, out, began); err != nil {
			return Assets{}, fmt.Errorf("building %s: %w; run the same command again", m.name, err)
		}
	}
	labnode := module{name: "labnode", pkg: "./cmd/labnode"}
	if err := labnode.build(ctx, source, filepath.Join(dir, labnode.name), out, began); err != nil {
		return Assets{}, fmt.Errorf("building labnode: %w", err)
	}
	return Assets{dir}, nil
}
