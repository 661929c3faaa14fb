package hostile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
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
	logs   []string
	offset map[string]int64
	value  func(ctx context.Context) (float64, error)
	metric string
	before float64
	ended  <-chan struct{} // of a process that is not in a pod
}

// watch remembers how things are before an attack.
func (s *Suite) watch(t *testing.T, c component, metricName string) *notice {
	t.Helper()
	return watchFiles(t, filepath.Join(s.Lab.LogDir(), c.logs), metricName, func(ctx context.Context) (float64, error) {
		return s.podMetric(ctx, c, metricName)
	})
}

func watchFiles(t *testing.T, pattern, metricName string, value func(context.Context) (float64, error)) *notice {
	t.Helper()
	n := &notice{offset: map[string]int64{}, metric: metricName, value: value, logs: []string{pattern}}
	for _, file := range n.files() {
		if info, err := os.Stat(file); err == nil {
			n.offset[file] = info.Size()
		}
	}
	if value != nil {
		var err error
		if n.before, err = value(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (n *notice) files() []string {
	files, err := filepath.Glob(n.logs[0])
	if err != nil {
		return nil
	}
	return files
}

// check waits for a log line with all of these words, and for the metric to
// have grown by at least by.
func (n *notice) check(t *testing.T, by float64, words ...string) {
	t.Helper()
	n.await(t, fmt.Sprintf("a log line with %q", words), func() error {
		for _, file := range n.files() {
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
	if n.value == nil {
		return
	}
	n.await(t, n.metric, func() error {
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

func eventually(t *testing.T, what string, ready func() error) {
	t.Helper()
	(*notice)(nil).await(t, what, ready)
}

// await waits until ready returns nil, the process has ended or testTimeout has.
func (n *notice) await(t *testing.T, what string, ready func() error) {
	t.Helper()
	var ended <-chan struct{}
	if n != nil {
		ended = n.ended
	}
	err := wait.Poll{Every: 200 * time.Millisecond, For: testTimeout, Ended: ended}.Try(context.Background(), ready)
	if err == nil {
		return
	}
	select {
	case <-ended:
		t.Errorf("waiting for %s of a process that has ended: %v", what, err)
	default:
		t.Errorf("waiting for %s: %v", what, err)
	}
}
