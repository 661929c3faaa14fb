package pool

import (
	"context"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// Drain refuses new Opens, and waits until nothing is in use or ctx ends.
// Idle carriers of an opener are closed; an acceptor's answer OPEN with
// REFUSE, and live until Close.
func (p *Pool) Drain(ctx context.Context) error {
	p.mu.Lock()
	p.draining = true
	waiters := p.waiters
	p.waiters = nil
	all := make([]*carrier.Carrier, 0, len(p.all))
	for c := range p.all {
		all = append(all, c)
	}
	if p.shrink != nil {
		p.shrink.Stop()
		p.shrink = nil
	}
	p.mu.Unlock()
	for _, w := range waiters {
		w <- supply{err: errDraining}
	}
	for _, c := range all {
		c.Drain()
	}
	p.cancel()
	for _, c := range all {
		if err := c.WaitIdle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close closes every carrier and waits for the dials under way.
func (p *Pool) Close() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Drain(now)
	p.mu.Lock()
	all := make([]*carrier.Carrier, 0, len(p.all))
	for c := range p.all {
		all = append(all, c)
	}
	p.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
	p.wg.Wait()
	return nil
}
