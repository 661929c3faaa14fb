package hostile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// component is a process of the hub and where its traces are.
type component struct {
	selector string // of its pods
	port     int32  // of its metrics
	logs     string // pattern of its logs in the lab
}

var (
	proxyServer  = component{"proxy.open-cluster-management.io/component-name=proxy-server", 8092, "hub_*_proxy-server.log"}
	addonManager = component{"component=cluster-proxy-manager", 58080, "hub_*_manager.log"}
)

// notice is what an operator sees of something that is tried after it was made.
type notice struct {
	logs   string // pattern
	offset map[string]int64
	metric string // empty is none
	value  func(ctx context.Context) (float64, error)
	before float64
}

// watch remembers how things are before an attack.
func (s *Suite) watch(t *testing.T, c component, metricName string) *notice {
	t.Helper()
	n := watchFiles(t, filepath.Join(s.Lab.LogDir(), c.logs))
	n.metric, n.value = metricName, func(ctx context.Context) (float64, error) {
		return s.Lab.PodMetric(ctx, "hub", s.Namespace, c.selector, c.port, metricName)
	}
	var err error
	if n.before, err = n.value(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

func watchFiles(t *testing.T, pattern string) *notice {
	t.Helper()
	n := &notice{offset: map[string]int64{}, logs: pattern}
	for _, file := range n.files(t) {
		if info, err := os.Stat(file); err == nil {
			n.offset[file] = info.Size()
		}
	}
	return n
}

func (n *notice) files(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(n.logs)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// check waits for a log line with all of these words, and for the metric to
// have grown by at least by.
func (n *notice) check(t *testing.T, by float64, words ...string) {
	t.Helper()
	suite.Eventually(t, fmt.Sprintf("a log line with %q", words), func() error {
		for _, file := range n.files(t) {
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(content[min(n.offset[file], int64(len(content))):])) {
				if containsAll(line, words) {
					return nil
				}
			}
		}
		return fmt.Errorf("no such line in %v", n.logs)
	})
	if n.metric == "" {
		return
	}
	suite.Eventually(t, n.metric, func() error {
		now, err := n.value(context.Background())
		if err == nil && now < n.before+by {
			err = fmt.Errorf("metric %s went from %v to %v, and should have grown by %v", n.metric, n.before, now, by)
		}
		return err
	})
}

func containsAll(line string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(line, word) {
			return false
		}
	}
	return true
}
