package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// installed is what all scenarios run against.
var installed *suite.Suite

// onNodes runs the scenarios on real nodes: make e2e.
var onNodes = os.Getenv("E2E_NODES") != ""

func TestMain(m *testing.M) {
	os.Exit(suite.Run(m, readOptions, func(s *suite.Suite) { installed = s }))
}

// readOptions reads the environment; see the package comment.
func readOptions(dir string) (suite.Options, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return suite.Options{}, err
	}
	o := suite.Options{Dir: dir, Root: root, Nodes: onNodes}
	if olderCluster != "" {
		o.Older = []string{olderCluster}
	}
	hub := os.Getenv("E2E_HUB_KUBECONFIG")
	if hub == "" {
		return o, nil
	}
	if onNodes || olderCluster != "" {
		return o, fmt.Errorf("E2E_HUB_KUBECONFIG is %q: without E2E_NODES and E2E_OLDER only, which are for a lab of the suite's own", hub)
	}
	o.Clusters = &suite.Clusters{Hub: hub, Managed: map[string]string{},
		ProxyServer: os.Getenv("E2E_PROXY_SERVER"), ProxyAPI: os.Getenv("E2E_PROXY_API"), Kubectl: os.Getenv("E2E_KUBECTL")}
	for one := range strings.SplitSeq(os.Getenv("E2E_KUBECONFIGS"), ",") {
		name, file, ok := strings.Cut(one, "=")
		if !ok {
			return o, fmt.Errorf("E2E_KUBECONFIGS has %q, want CLUSTER=FILE", one)
		}
		o.Clusters.Managed[name] = file
	}
	return o, nil
}

// needNodes skips what only real nodes can show.
func needNodes(t *testing.T) {
	t.Helper()
	if !onNodes {
		t.Skip("needs real nodes: make e2e")
	}
}

// releaseOnNodes leaves a scenario on real nodes to make e2e, which runs before a release. CI,
// which is make e2e-nodes, does without it: it ends as in the lab without nodes, or takes too long.
func releaseOnNodes(t *testing.T) {
	t.Helper()
	if os.Getenv("E2E_NODES") == "differ" {
		t.Skip("make e2e runs it on nodes")
	}
}
