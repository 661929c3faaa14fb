package e2e

import (
	"path/filepath"
	"testing"

	"open-cluster-management.io/cluster-proxy/test/hostile"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// TestHostile attacks the system with everything in test/hostile. It disturbs
// both clusters, and repairs what it broke.
func TestHostile(t *testing.T) {
	long.Test(t)
	installed.NeedLab(t, "stops processes and reads their logs")
	if onNodes {
		t.Skip("the attackers run beside processes: make test")
	}
	hostile.Run(t, installed, filepath.Join(installed.Dir, "cluster-proxy"))
}
