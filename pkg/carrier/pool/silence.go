package pool

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/liveness"
)

const (
	// pingDials is how many carriers at a time are dialed to find out about a peer to which none
	// is idle, and pingAgain when those that led to other peers are dialed again. With five
	// servers behind one address, none of four dials leads to one of them 2 times in 5, and none
	// of those within liveness.PingTimeout one time in 35.
	pingDials = 4
	pingAgain = 250 * time.Millisecond
	// slowAfter is how long a dial may take before another one begins beside it for waiting
	// Opens, and maxSlow how many may take longer at a time: the oldest give way.
	slowAfter = 500 * time.Millisecond
	maxSlow   = 8
)

var errSilent = errors.New("the peer does not answer")

// peerState is what a Pool knows of a peer.
type peerState struct {
	carriers int
	alive    *liveness.Peer
	answered chan struct{} // has a token after an answer, of whatever kind
	awaited  atomic.Int32  // Opens that wait for an answer
}

// heard notes an answer.
func (s *peerState) heard() {
	s.alive.Heard()
	select {
	case s.answered <- struct{}{}:
	default:
	}
}

// heardFrom notes an answer of a peer. If it was silent, those who wait get its idle carriers.
func (p *Pool) heardFrom(peer *peerState) {
	silent := peer.alive.IsSuspect()
	peer.heard()
	if silent {
		p.refill()
	}
}

// addTo counts one more carrier to a peer, which is alive; mu is held.
func (p *Pool) addTo(name string) {
	peer := p.peers[name]
	if peer == nil {
		peer = &peerState{answered: make(chan struct{}, 1)}
		peer.alive = liveness.New(func(ctx context.Context) error { return p.pingPeer(ctx, name, peer) })
		p.peers[name] = peer
	}
	peer.carriers++
	if peer.alive.IsSuspect() {
		p.closeIdle(name)
	}
	peer.heard()
}

// dropFrom counts one carrier less; mu is held.
func (p *Pool) dropFrom(name string) {
	peer := p.peers[name]
	if peer.carriers--; peer.carriers == 0 {
		peer.alive.Forget()
		delete(p.peers, name)
	}
}

// openOn opens a connection on one carrier. If its peer turns out to be silent, the attempt ends
// and the carrier with it, and the peer's idle carriers are not used until it answers. A peer that
// has answered something since the Open began is slow, and is waited for: another attempt would
// find it no faster.
func (p *Pool) openOn(ctx context.Context, c *carrier.Carrier, r carrier.OpenRequest, began time.Time) (*carrier.Conn, error) {
	p.mu.Lock()
	peer := p.peers[c.PeerName()]
	p.mu.Unlock()
	if p.cfg.OnePeer || peer == nil {
		return c.Open(ctx, r)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if !peer.alive.HeardSince(began) {
		stop := peer.alive.AwaitAnswer(func() { cancel(errSilent) })
		defer stop()
		peer.awaited.Add(1)
		defer peer.awaited.Add(-1)
	}
	// The path of one carrier may be gone, while the peer answers on others.
	lost := time.AfterFunc(liveness.PingAfter+liveness.PingTimeout, func() {
		if dial.IsUnacknowledged(c.Transport()) {
			cancel(errSilent)
		}
	})
	defer lost.Stop()
	conn, err := c.Open(ctx, r)
	switch {
	case carrier.Answered(err):
		p.heardFrom(peer)
	case context.Cause(ctx) == errSilent:
		err = &carrier.Error{Code: carrier.CutOff, Message: errSilent.Error(), Err: errSilent}
	}
	return conn, err
}

// pingPeer waits for an answer of a peer on one of its idle carriers. If there is none, a
// carrier that is dialed now may lead to the peer, which shows that it is alive, too. Dials that
// hang may lead to a peer that is silent, so they are not made again; nor are any once no Open
// waits for the peer, which may have gone for good while a connection to it goes on.
func (p *Pool) pingPeer(ctx context.Context, name string, peer *peerState) error {
	p.mu.Lock()
	i := slices.IndexFunc(p.idle, func(i idleCarrier) bool { return i.c.PeerName() == name })
	var c *carrier.Carrier
	if i >= 0 {
		c = p.idle[i].c
		p.idle = slices.Delete(p.idle, i, i+1)
	}
	full := len(p.all) >= p.cfg.Max
	p.mu.Unlock()
	if c == nil && full {
		return nil // no sign of a silent peer
	}
	if c == nil {
		select {
		case <-peer.answered: // before
		default:
		}
		for {
			if peer.awaited.Load() > 0 && !peer.alive.IsSuspect() {
				p.Request(pingDials - p.Stats().Dialing)
			}
			select {
			case <-peer.answered:
				return nil
			case <-time.After(pingAgain):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	_, err := c.Open(ctx, carrier.OpenRequest{Network: carrier.NetworkPing})
	if carrier.Answered(err) {
		p.heardFrom(peer)
		return nil
	}
	return err
}

// usable counts the idle carriers to peers that are not silent, and returns the place of the one to
// use next, or -1; mu is held.
func (p *Pool) usable() (n, next int) {
	silent := false
	for _, peer := range p.peers {
		silent = silent || peer.alive.IsSuspect()
	}
	if !silent {
		return len(p.idle), len(p.idle) - 1
	}
	next = -1
	for i, one := range p.idle {
		if !p.peers[one.c.PeerName()].alive.IsSuspect() {
			n, next = n+1, i
		}
	}
	return n, next
}

// handOut gives idle carriers to those who wait; mu is held. They have come to wait while the peers
// of all idle carriers were silent.
func (p *Pool) handOut() {
	for len(p.waiters) > 0 {
		_, next := p.usable()
		if next < 0 || p.idle[next].c.Role() != carrier.Opener {
			return
		}
		p.waiters[0] <- supply{c: p.idle[next].c}
		p.waiters, p.idle = p.waiters[1:], slices.Delete(p.idle, next, next+1)
	}
}

// closeIdle closes the idle carriers to a silent peer that has come back by a new one: their
// transports may be gone. mu is held.
func (p *Pool) closeIdle(peer string) {
	p.idle = slices.DeleteFunc(p.idle, func(i idleCarrier) bool {
		if i.c.PeerName() != peer {
			return false
		}
		go i.c.GiveUp(&carrier.Error{Code: carrier.Canceled, Message: errSilent.Error()})
		return true
	})
}

// slowDial is a dial beside which another one has begun.
type slowDial struct{ cancel context.CancelCauseFunc }

var errGivenUp = errors.New("the dial takes too long, and another one was begun")

// dialBeside is Dial, beside which another one begins for waiting Opens if it takes long.
func (p *Pool) dialBeside() (*carrier.Carrier, error) {
	ctx, cancel := context.WithCancelCause(p.ctx)
	one := &slowDial{cancel}
	timer := time.AfterFunc(slowAfter, func() {
		p.mu.Lock()
		if ctx.Err() == nil {
			p.slow = append(p.slow, one)
		}
		if len(p.slow) > maxSlow {
			p.slow[0].cancel(errGivenUp)
			p.slow = p.slow[1:]
		}
		p.mu.Unlock()
		p.refill()
	})
	c, err := p.cfg.Dial(ctx)
	timer.Stop()
	if err != nil && context.Cause(ctx) == errGivenUp {
		err = errGivenUp
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	cancel(nil)
	p.slow = slices.DeleteFunc(p.slow, func(other *slowDial) bool { return other == one })
	return c, err
}
