package e2e

import (
	"path/filepath"
	"testing"

	"open-cluster-management.io/cluster-proxy/test/hostile"
)

// TestHostile attacks the system with everything in test/hostile.
func TestHostile(t *testing.T) {
	if onNodes {
		t.Skip("the attackers run beside processes: make test")
	}
	hostile.Run(t, &hostile.Suite{
		Lab: suite.lab, Clusters: [2]string{suite.clusters[0], suite.clusters[1]}, Namespace: suite.namespace,
		ProxyServer: suite.proxyServer, ProxyAPI: suite.proxyAPI, Domain: clusterDomain, Binary: filepath.Join(suite.dir, "cluster-proxy"), CanPause: true,
	})
}
