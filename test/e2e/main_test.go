package e2e

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// installed is what all scenarios run against.
var installed *suite.Suite

// withoutRace builds what the pods run without the race detector, to measure it.
var withoutRace bool

// benchDelay is how long a round trip between agents and the hub takes; nothing
// is added if it is 0.
var benchDelay, _ = time.ParseDuration(os.Getenv("BENCH_DELAY"))

// moreClusters are managed clusters beside the two that the scenarios need.
var moreClusters []string

// withoutClusters runs what needs no clusters: a benchmark of simulated ones.
var withoutClusters bool

// benchProcess is what this process is for, if a benchmark has started it.
var benchProcess func() error

// onNodes runs the scenarios on real nodes: make e2e.
var onNodes = os.Getenv("E2E_NODES") != ""

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, m)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) int {
	if benchProcess != nil {
		if err := benchProcess(); err != nil {
			fmt.Fprintln(os.Stderr, "running a process of a benchmark:", err)
			return 1
		}
		return 0
	}
	if withoutClusters {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "cluster-proxy-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for this run:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	options, err := readOptions(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "reading the environment:", err)
		return 1
	}
	s, err := suite.Start(ctx, options)
	if err != nil {
		fmt.Fprintln(os.Stderr, "setting up the clusters:", err)
		s.Stop(true)
		return 1
	}
	installed = s
	// An interrupt ends the lab, and not only the waiting for it.
	interrupted := context.AfterFunc(ctx, func() {
		s.Stop(false)
		os.Exit(130)
	})
	cleaning, stop := context.WithCancel(ctx)
	if s.Lab != nil {
		go s.CleanRequests(cleaning)
	}
	code := m.Run()
	stop()
	interrupted()
	if err := s.Races(); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: a process of the addon:", err)
		code = max(code, 1)
	}
	s.Stop(code != 0)
	return code
}

// readOptions reads the environment; see the package comment.
func readOptions(dir string) (suite.Options, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return suite.Options{}, err
	}
	o := suite.Options{Dir: dir, Root: root, Nodes: onNodes, WithoutRace: withoutRace, More: moreClusters, Delay: benchDelay}
	if olderCluster != "" {
		o.Older = []string{olderCluster}
	}
	hub := os.Getenv("E2E_HUB_KUBECONFIG")
	if hub == "" {
		return o, nil
	}
	if onNodes || benchDelay > 0 || olderCluster != "" {
		return o, fmt.Errorf("E2E_HUB_KUBECONFIG is %q: without E2E_NODES, E2E_OLDER and BENCH_DELAY only, which are for a lab of the suite's own", hub)
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
