package proxyapi

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// recheckInterval is how often the certificates of agents are looked at again.
const recheckInterval = 2 * time.Second

// recheck moves requests away from connections whose agent has a certificate that a
// handshake would not accept any more, until ctx is done. Requests that are on them
// go on: the proxy server ends the agent's carriers, and these with them, unless the
// agent shows it another certificate.
func (p *pool) recheck(ctx context.Context, good func(*pki.Certificate) error) error {
	tick := time.NewTicker(recheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		p.mu.Lock()
		agents := make([]*agent, 0, len(p.clusters))
		for _, a := range p.clusters {
			agents = append(agents, a)
		}
		p.mu.Unlock()
		for _, a := range agents {
			if err := a.leaveBad(good); err != nil {
				klog.FromContext(ctx).Info("New connections to an agent are made", "cluster", a.cluster, "reason", err.Error())
			}
		}
	}
}

// leaveBad has the next requests make connections of their own if the certificate
// of one that they could use is not good, and says why.
func (a *agent) leaveBad(good func(*pki.Certificate) error) (err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.conns {
		if c.certificate == nil {
			continue
		}
		if bad := good(c.certificate); bad != nil {
			c.certificate = nil
			err = bad
		}
	}
	if err == nil || a.gone {
		return nil
	}
	old := a.requests
	a.requests, a.reads = a.newGeneration(), a.newKept()
	a.upgrades.CloseIdleConnections()
	old.retire()
	return err
}
