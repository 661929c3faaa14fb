//go:build linux

package lab

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestLabWithNodes starts a lab with nodes, which proves that its managed
// clusters are closed, and looks for what it leaves behind.
func TestLabWithNodes(t *testing.T) {
	if os.Getenv("E2E_NODES") == "" {
		t.Skip("starts machines as root: make e2e")
	}
	// With cold caches, how long the build takes is the machine's affair.
	if _, err := BuildAssets(t.Context(), "", t.Output()); err != nil {
		t.Fatal(err)
	}
	if _, err := buildNodeAssets(t.Context(), t.Output()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "lab")
	cgroups, err := filepath.Glob("/sys/fs/cgroup/*/cluster-proxy-lab/*")
	if err != nil {
		t.Fatal(err)
	}
	busybox := "/bin/busybox" // stands in for the addon, which this test does not install
	l, err := Start(ctx, Options{Dir: dir, Binary: busybox, Nodes: true, Out: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	defer stop()
	for name := range l.Managed {
		t.Run("workload of "+name, func(t *testing.T) { testWorkload(ctx, t, l, name) })
	}
	// The probe must be able to fail: without its fence a cluster is open.
	if err := l.Nodes().Run("cluster1", "nft", "delete", "table", "inet", "fence"); err != nil {
		t.Fatal(err)
	}
	if err := l.ProveClosed(ctx); err == nil || !strings.Contains(err.Error(), "not closed") {
		t.Errorf("without a fence the probe says %v", err)
	}
	stop()
	for _, what := range []struct{ file, text string }{{"/proc/self/mountinfo", dir}, {"/proc/net/dev", "wan"}} {
		content, err := os.ReadFile(what.file)
		if err != nil || strings.Contains(string(content), what.text) {
			t.Errorf("left in %s: %q, %v", what.file, what.text, err)
		}
	}
	now, err := filepath.Glob("/sys/fs/cgroup/*/cluster-proxy-lab/*")
	if err != nil || len(now) > len(cgroups) {
		t.Errorf("control groups left: %v, %v", now, err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range processes {
		if line, _ := os.ReadFile(file); strings.Contains(string(line), dir) {
			t.Errorf("left running: %s", strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
}
