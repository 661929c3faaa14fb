package suite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"open-cluster-management.io/cluster-proxy/test/lab"
	"open-cluster-management.io/cluster-proxy/test/testkit/program"
)

// keepLogs copies the logs of a failed run to where they outlive it, and shows
// the end of those of the addon's own processes.
func keepLogs(l *lab.Lab) {
	dir, err := os.MkdirTemp("", "cluster-proxy-e2e-logs-")
	if err == nil {
		err = os.CopyFS(filepath.Join(dir, "logs"), os.DirFS(l.LogDir()))
		for _, cluster := range l.Names() {
			// Only a lab with nodes has them.
			_ = os.CopyFS(filepath.Join(dir, "pods", cluster), os.DirFS(l.PodLogDir(cluster)))
		}
	}
	fmt.Fprintln(os.Stderr, "logs of the lab:", dir, err)
	for _, pattern := range []string{
		filepath.Join(dir, "logs", "*_open-cluster-management-*_*.log"),                            // of the lab's pods
		filepath.Join(dir, "pods", "*", "open-cluster-management-*_*cluster-proxy*", "*", "*.log"), // of real nodes
	} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			fmt.Fprintf(os.Stderr, "--- the end of %s\n%s\n", strings.TrimPrefix(file, dir), program.Tail(file))
		}
	}
}
