package agentclient

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// recheckInterval is how often the certificates of agents are looked at again.
const recheckInterval = 2 * time.Second

// Recheck moves requests away from connections whose agent has a certificate that a
// handshake would not accept any more, until ctx is done. Requests that are on them
// go on: the proxy server ends the agent's carriers, and these with them, unless the
// agent shows it another certificate.
func (c *Client) Recheck(ctx context.Context, good func(*pki.Certificate) error) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		c.mu.Lock()
		pools := slices.Collect(maps.Values(c.pools))
		c.mu.Unlock()
		for _, p := range pools {
			if err := p.leaveBad(good); err != nil {
				klog.FromContext(ctx).Info("New connections to an agent are made", "cluster", p.cluster, "reason", err.Error())
			}
		}
	}, recheckInterval)
	return nil
}

// leaveBad has the next requests make connections of their own if the certificate
// of one that they could use is not good, and says why.
func (p *pool) leaveBad(good func(*pki.Certificate) error) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if c.certificate == nil {
			continue
		}
		if bad := good(c.certificate); bad != nil {
			c.certificate = nil
			err = bad
		}
	}
	if err == nil || p.gone {
		return nil
	}
	old := p.requests
	p.requests, p.reads = p.newConnGroup(), p.newReadPool()
	p.upgrades.CloseIdleConnections()
	old.retire()
	return err
}
