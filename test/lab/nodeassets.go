//go:build linux

package lab

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"
)

// nodeModules are built for a lab with nodes only, into a folder of their own.
var nodeModules = []module{{name: "coredns", pkg: "."}}

// buildNodeAssets builds CoreDNS, once, and labnode, which Go's own cache makes
// quick.
func buildNodeAssets(ctx context.Context, out io.Writer) (Assets, error) {
	dir, err := buildModules(ctx, "nodes", nodeModules, neverReady, "with cold caches it takes three minutes", out)
	if err != nil {
		return Assets{}, err
	}
	source, err := sourceDir()
	if err != nil {
		return Assets{}, err
	}
	labnode := module{name: "labnode", pkg: "./cmd/labnode"}
	if err := labnode.build(ctx, source, filepath.Join(dir, labnode.name), out, time.Now()); err != nil {
		return Assets{}, fmt.Errorf("building labnode: %w", err)
	}
	return Assets{dir: dir}, nil
}
