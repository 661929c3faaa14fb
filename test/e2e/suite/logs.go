package suite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"open-cluster-management.io/cluster-proxy/test/lab"
	"open-cluster-management.io/cluster-proxy/test/testkit/program"
)

// podLogs are the logs of the addon's own processes in a lab without nodes.
const podLogs = "*_open-cluster-management-*_*.log"

// Races has an error if the race detector has found something in a process of the addon. That goes
// on nevertheless, and a scenario hardly notices.
func (s *Suite) Races() error {
	if s.Lab == nil {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(s.Lab.LogDir(), podLogs))
	found := []error{err}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if _, race, ok := strings.Cut(string(text), "WARNING: DATA RACE"); ok {
			err = fmt.Errorf("%s has a data race:%.3000s", filepath.Base(file), race)
		}
		found = append(found, err)
	}
	return errors.Join(found...)
}

// keepLogs copies the logs of a failed run to where they outlive it, and the end
// of those of the addon's own processes to a file of its own, so that what the
// tests say is not lost among them.
func keepLogs(l *lab.Lab) {
	dir, err := os.MkdirTemp("", "cluster-proxy-e2e-logs-")
	if err == nil {
		err = os.CopyFS(filepath.Join(dir, "logs"), os.DirFS(l.LogDir()))
		for _, cluster := range l.Names() {
			// Only a lab with nodes has them.
			_ = os.CopyFS(filepath.Join(dir, "pods", cluster), os.DirFS(l.PodLogDir(cluster)))
		}
	}
	var ends strings.Builder
	for _, pattern := range []string{
		filepath.Join(dir, "logs", podLogs),
		filepath.Join(dir, "pods", "*", "open-cluster-management-*_*cluster-proxy*", "*", "*.log"), // of real nodes
	} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			fmt.Fprintf(&ends, "the end of %s\n%s\n", strings.TrimPrefix(file, dir), program.Tail(file))
		}
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "ends.txt"), []byte(ends.String()), 0o600)
	}
	fmt.Fprintln(os.Stderr, "logs of the lab:", dir, "error:", err)
}
