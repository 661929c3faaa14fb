package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// UpstreamSuite is the e2e suite of OCM's own cluster-proxy.
type UpstreamSuite struct {
	// Source is the folder of the suite, with the manifests of its Job and of the
	// Services that it asks.
	Source string

	program string
}

// upstreamSuite is a package of tests.
const upstreamSuite = "open-cluster-management.io/cluster-proxy/test/e2e"

// BuildUpstreamSuite builds the e2e suite of OCM's own cluster-proxy, once. It says
// on out what it does.
func BuildUpstreamSuite(ctx context.Context, out io.Writer) (UpstreamSuite, error) {
	source, u, err := findUpstream(ctx)
	if err != nil {
		return UpstreamSuite{}, err
	}
	suite := UpstreamSuite{Source: filepath.Join(u.Source, "test/e2e"), program: filepath.Join(u.programs, "e2e")}
	if _, err := os.Stat(suite.program); err == nil {
		return suite, nil
	}
	fmt.Fprintln(out, "lab: building the e2e suite of OCM's own cluster-proxy; with cold caches it takes five minutes")
	m := module{name: "e2e", pkg: upstreamSuite}
	if err := m.compile(ctx, []string{"test", "-c"}, source, suite.program, out, time.Now()); err != nil {
		return UpstreamSuite{}, fmt.Errorf("building the e2e suite of OCM's own cluster-proxy: %w", err)
	}
	return suite, nil
}
