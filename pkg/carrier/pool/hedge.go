package pool

import (
	"context"
	"slices"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
)

const (
	// pingAfter is how long an OPEN may stay unanswered before its peer is pinged
	// on another carrier: a target that is slow to accept does not delay that.
	pingAfter = time.Second
	// pingTimeout is how long the ping may stay unanswered then.
	pingTimeout = 750 * time.Millisecond
	// stuckAfter is how long a dial may take before another one begins beside it for
	// waiting Opens.
	stuckAfter = 500 * time.Millisecond
	// maxStuck is how many dials may be stuck at a time: the oldest give way.
	maxStuck = 8
)

// peerState is what a Pool knows of a peer.
type peerState struct {
	carriers int
	heard    time.Time // when it answered last, in any way
}

// hear notes that the peer of c is alive; mu is held.
func (p *Pool) hear(c *carrier.Carrier) {
	if peer := p.peers[c.PeerName()]; peer != nil {
		peer.heard = time.Now()
	}
}

// heardSince reports whether the peer answered anything since then.
func (p *Pool) heardSince(peer string, then time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.peers[peer]
	return known != nil && !known.heard.Before(then)
}

// takeOf takes an idle carrier to a peer, if there is one.
func (p *Pool) takeOf(peer string) *carrier.Carrier {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.idle, func(i idleCarrier) bool { return i.c.PeerName() == peer })
	if i < 0 {
		return nil
	}
	c := p.idle[i].c
	p.idle = slices.Delete(p.idle, i, i+1)
	return c
}

// ping asks for an answer on an idle carrier, which is closed if there is none.
func (p *Pool) ping(ctx context.Context, c *carrier.Carrier) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := c.Open(ctx, carrier.OpenRequest{Network: carrier.NetworkPing})
	p.noteAnswer(c, err)
}

func (p *Pool) noteAnswer(c *carrier.Carrier, err error) {
	if carrier.Answered(err) {
		p.mu.Lock()
		p.hear(c)
		p.mu.Unlock()
	}
}

// shun closes the idle carriers to a peer that does not answer. It comes back by
// a new carrier, since that has a handshake, or by one that ends its use.
func (p *Pool) shun(peer string) {
	p.mu.Lock()
	var silent []*carrier.Carrier
	for _, i := range p.idle {
		if i.c.PeerName() == peer {
			silent = append(silent, i.c)
		}
	}
	p.idle = slices.DeleteFunc(p.idle, func(i idleCarrier) bool { return i.c.PeerName() == peer })
	p.mu.Unlock()
	for _, c := range silent {
		c.GiveUp(errSilent)
	}
}

var errSilent = &carrier.Error{Code: carrier.Unreachable, Message: "the peer does not answer"}

// openHedged opens a connection on one carrier, and on another one as well when
// the first one's peer does not answer, and so on. The first answer counts.
//
// The proxy server's hedge is another algorithm: it tries agents and peers in turn,
// each once, and goes on after a refusal. Here all attempts are alike, and only
// silence begins another one.
func (p *Pool) openHedged(ctx context.Context, r carrier.OpenRequest) (*carrier.Conn, error) {
	h := &hedged{pool: p, request: r, over: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancel(ctx)
	defer h.cancel()
	h.try()
	<-h.over
	return h.conn, h.err
}

type hedged struct {
	pool    *Pool
	request carrier.OpenRequest
	ctx     context.Context
	cancel  context.CancelFunc
	over    chan struct{} // closed when conn and err are final

	mu       sync.Mutex
	open     int // attempts without a result
	finished bool
	guessed  bool
	conn     *carrier.Conn
	err      error
}

func (h *hedged) try() {
	h.mu.Lock()
	h.open++
	h.mu.Unlock()
	conn, err := h.pool.openOn(h.ctx, h.request, h.mind)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	switch {
	case h.finished && err == nil:
		conn.Abort(&carrier.Error{Code: carrier.Canceled, Message: "another carrier was faster"})
	case h.finished:
	case err == nil || carrier.Answered(err) || h.open == 0:
		h.finished, h.conn, h.err = true, conn, err
		h.cancel()
		close(h.over)
	}
}

// mind watches over an OPEN that is sent on c now, until stop is called.
func (h *hedged) mind(c *carrier.Carrier) (stop func()) {
	began, over := time.Now(), make(chan struct{})
	timer := time.AfterFunc(pingAfter, func() { h.watch(c, began, over) })
	return func() {
		timer.Stop()
		close(over)
	}
}

// watch asks another carrier as soon as the OPEN that was sent on c seems to have
// no answer: its packet was not acknowledged, the peer does not answer a ping
// either, or, once for each Open, there is nothing to ping it on.
func (h *hedged) watch(c *carrier.Carrier, began time.Time, over <-chan struct{}) {
	for {
		lost := dial.IsUnacknowledged(c.Transport())
		suspect := lost || !h.pool.heardSince(c.PeerName(), began)
		var other *carrier.Carrier
		began = time.Now()
		pause := pingAfter
		if suspect {
			pause = pingTimeout
			if other = h.pool.takeOf(c.PeerName()); other != nil {
				go h.pool.ping(context.WithoutCancel(h.ctx), other)
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-over:
			timer.Stop()
			return
		case <-timer.C:
		}
		silent := suspect && !h.pool.heardSince(c.PeerName(), began)
		if silent && (other != nil || lost) {
			h.pool.shun(c.PeerName())
		}
		if silent && (other != nil || h.guess()) || lost {
			h.try()
			return
		}
	}
}

// guess reports whether another carrier may be asked without evidence that the first
// one's peer is gone.
func (h *hedged) guess() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := !h.guessed
	h.guessed = true
	return first
}

var errStuck = &carrier.Error{Code: carrier.TimedOut, Message: "dialing the peer takes too long"}

// mindDial begins another dial beside one that takes long, for the Opens that wait.
// It lasts until stop is called.
func (p *Pool) mindDial(cancel context.CancelCauseFunc) (stop func()) {
	slow := &stuckDial{cancel: cancel}
	timer := time.AfterFunc(stuckAfter, func() {
		p.mu.Lock()
		if !slow.over {
			p.stuck = append(p.stuck, slow)
		}
		var oldest *stuckDial
		if len(p.stuck) > maxStuck {
			oldest = p.stuck[0]
			p.stuck = p.stuck[1:]
		}
		p.mu.Unlock()
		if oldest != nil {
			oldest.cancel(errStuck)
		}
		p.refill()
	})
	return func() {
		timer.Stop()
		p.mu.Lock()
		defer p.mu.Unlock()
		slow.over = true
		p.stuck = slices.DeleteFunc(p.stuck, func(s *stuckDial) bool { return s == slow })
	}
}

// stuckDial is a dial that takes long.
type stuckDial struct {
	cancel context.CancelCauseFunc
	over   bool // under the pool's mu
}
