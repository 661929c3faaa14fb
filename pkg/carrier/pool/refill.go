package pool

import (
	"context"
	"slices"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// refill tops the pool up to MinIdle idle carriers plus one per waiter, and to a control
// session among the idle ones if there has been one. The side that does not dial asks the
// peer for the waiters' share.
func (p *Pool) refill() { p.refillAfter(0) }

// refillAfter is refill with failures added to the backoff, unless an Open is
// waiting.
func (p *Pool) refillAfter(failures int) {
	p.mu.Lock()
	p.handOut()
	usable, _ := p.usable()
	short := p.cfg.MinIdle + len(p.waiters) - usable
	if p.sessions && (len(p.idle) == 0 || !p.idle[0].c.InSession()) {
		short = max(short, 1)
	}
	ask := 0
	switch {
	case p.draining:
	case p.cfg.Dial != nil:
		if failures += p.failures; len(p.waiters) > 0 {
			failures = min(p.failures, 1)
		}
		if len(p.waiters) > 0 {
			short += len(p.slow)
		}
		p.startDials(short-p.dialing, failures)
	case p.cfg.More != nil:
		if now := time.Now(); now.Sub(p.askedAt) >= askAgain {
			p.asked = 0
		}
		// The dialing side keeps MinIdle on its own.
		ask = min(len(p.waiters), p.cfg.Max-len(p.all)) - p.asked
		if ask > 0 {
			p.asked += ask
			p.askedAt = time.Now()
		}
	}
	p.mu.Unlock()
	if ask > 0 {
		p.cfg.More(ask)
	}
}

// Request is the other side's More, on the side that dials.
func (p *Pool) Request(n int) {
	p.mu.Lock()
	if !p.draining && p.cfg.Dial != nil {
		p.startDials(n, min(p.failures, 1))
		p.wake()
	}
	p.mu.Unlock()
}

// startDials starts n dials, which pause if there were failures. After a dial
// that failed there is one at a time. mu is held.
func (p *Pool) startDials(n, failures int) {
	n = min(n, p.cfg.Max-len(p.all)-p.dialing)
	if p.failures > 0 {
		n = min(n, 1+len(p.slow)-p.dialing)
	}
	for range n {
		p.dialing++
		var delay time.Duration
		if failures > 0 {
			delay = p.cfg.Backoff(failures)
		}
		p.wg.Go(func() { p.dial(delay) })
	}
}

func (p *Pool) dial(delay time.Duration) {
	c, err := p.dialAfter(delay)
	if err == nil {
		err = p.Add(c)
	}
	p.mu.Lock()
	p.dialing--
	var failed []chan supply
	switch {
	case err == errGivenUp: // which says nothing about the newer dial
	case err != nil:
		p.lastErr = err
		p.failures++
		if !p.cfg.OnePeer && len(p.all) == 0 && p.dialing == 0 {
			failed, p.waiters = p.waiters, nil
		}
	default:
		p.lastErr, p.failures = nil, 0
	}
	p.mu.Unlock()
	for _, w := range failed {
		w <- supply{err: err}
	}
	if p.ctx.Err() == nil {
		p.refill()
	}
}

func (p *Pool) dialAfter(delay time.Duration) (*carrier.Carrier, error) {
	if delay > 0 {
		if err := p.pause(delay); err != nil {
			return nil, err
		}
	}
	if p.cfg.OnePeer {
		return p.cfg.Dial(p.ctx)
	}
	return p.dialBeside()
}

// wake shortens the current pause between dials, or else the next one, because an
// Open waits; mu is held.
func (p *Pool) wake() {
	select {
	case p.hurry <- struct{}{}:
	default:
	}
}

// pause waits before a dial. wake shortens it to the pause after a first failure, once
// only: one Open after the other would prolong it.
func (p *Pool) pause(delay time.Duration) error {
	end := time.Now().Add(delay)
	timer := time.NewTimer(delay)
	defer timer.Stop()
	hurry := p.hurry
	for {
		select {
		case <-timer.C:
			return nil
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		case <-hurry:
			hurry = nil
			timer.Reset(min(time.Until(end), p.cfg.Backoff(1)))
		}
	}
}

// closeSurplus closes what was idle for IdleTime, oldest first, and comes
// again while there are more than MinIdle. Control sessions count and stay.
func (p *Pool) closeSurplus() {
	p.mu.Lock()
	oldest := 0
	for oldest < len(p.idle) && p.idle[oldest].c.InSession() {
		oldest++
	}
	var old []*carrier.Carrier
	for _, i := range p.idle[oldest:] {
		if len(p.idle)-len(old) <= p.cfg.MinIdle || time.Since(i.since) < p.cfg.IdleTime {
			break
		}
		old = append(old, i.c)
	}
	p.idle = slices.Delete(p.idle, oldest, oldest+len(old))
	p.shrink = nil
	if oldest < len(p.idle) && len(p.idle) > p.cfg.MinIdle && !p.draining {
		p.shrink = time.AfterFunc(p.cfg.IdleTime-time.Since(p.idle[oldest].since), p.closeSurplus)
	}
	p.mu.Unlock()
	for _, c := range old {
		c.Drain()
	}
}
