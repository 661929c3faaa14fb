package proxyagent

import (
	"context"
	"fmt"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

const (
	// ownCertificateWait is how long an agent waits for a certificate of its own, and
	// ownCertificateCheck how often it looks.
	ownCertificateWait  = 3 * time.Second
	ownCertificateCheck = 250 * time.Millisecond
)

// waitForOwnCertificate waits until the certificate is one of this release's for the
// cluster. Upstream keeps its own in the same Secret, which is the same for all
// clusters and is accepted nowhere: an agent that takes over from upstream's may start
// before OCM has replaced it. The error ends the process on purpose. Kubelets write a
// Secret that has changed to the files of a pod that goes on a minute later, and to
// those of one whose container starts again at once.
func waitForOwnCertificate(ctx context.Context, source *pki.Reloader, cluster string) error {
	if cluster == "" {
		return nil // a plain konnectivity agent
	}
	ctx, cancel := context.WithTimeout(ctx, ownCertificateWait)
	defer cancel()
	for {
		name := source.CommonName()
		if name == identity.AgentCommonName(cluster) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("checking the agent's certificate: its common name is %q, want %q: it is of an earlier release, and OCM has not replaced it yet; restarting to read the new one", name, identity.AgentCommonName(cluster))
		case <-time.After(ownCertificateCheck):
		}
		if err := source.Load(); err != nil {
			return err
		}
	}
}
