package e2e

import (
	"path/filepath"
	"testing"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
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
	hostile.Run(t, &hostile.Suite{
		Lab: installed.Lab, Clusters: [2]string{installed.Clusters[0], installed.Clusters[1]}, Namespace: installed.Namespace,
		ProxyServer: installed.ProxyServer, ProxyAPI: installed.ProxyAPI, Domain: suite.ClusterDomain, Binary: filepath.Join(installed.Dir, "cluster-proxy"),
	})
}
