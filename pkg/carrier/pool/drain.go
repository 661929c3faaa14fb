package pool

import (
	"cmp"
	"context"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// Drain refuses new Opens, closes each carrier as soon as it is idle, and waits until all are
// or ctx ends. The peer may have sent an OPEN on one meanwhile, and sends it on another
// carrier then: it might have one of a newer pool.
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
	busy := make(chan error, len(all))
	for _, c := range all {
		go func() {
			err := c.WaitIdle(ctx)
			if err == nil {
				_ = c.Close()
			}
			busy <- err
		}()
	}
	var err error
	for range all {
		err = cmp.Or(err, <-busy)
	}
	return err
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
