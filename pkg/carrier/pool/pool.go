package pool

import (
	"context"
	"slices"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
)

// Config configures a Pool. Zero values mean the defaults.
type Config struct {
	MinIdle    int           // idle carriers kept ready; default 2
	Max        int           // most carriers; default 4,096
	MaxPending int           // most Opens without an answer; default 1,024
	IdleTime   time.Duration // an opener closes what was idle longer and is above MinIdle; default 1 min

	// Dial makes a carrier, on the side that dials them. Retries are
	// Backoff(number of failures in a row) apart, or Backoff(1) once an Open
	// waits for a carrier. A carrier that was cut off counts as a failure unless
	// an Open waits: it is rarely the only one, and a peer that died takes those of
	// all its clients with it.
	Dial    func(ctx context.Context) (*carrier.Carrier, error)
	Backoff func(failures int) time.Duration
	// OnePeer says that all carriers lead to the same peer, which goes on
	// draining once it has begun, and that waiting Opens wait for the next Dial if one
	// fails; else Dial may lead to another peer, which serves what one that drains or is
	// silent does not, and if it fails with no carrier and no other Dial, so do waiting Opens.
	// Peers are told apart by PeerName.
	OnePeer bool
	// More asks the dialing side for n carriers more; it must not block.
	More func(n int)
	// Ended is called for a carrier that has ended, perhaps twice; it must not block.
	Ended func(c *carrier.Carrier)
}

// Pool keeps the carriers to one peer. On the side that sends OPEN it hands
// out idle ones; on the side that dials it keeps enough of them established.
// A side that does both, as our client library does, uses one Pool for both.
type Pool struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	idle     []idleCarrier // the one used last is at the end and is used first; control sessions are at the start
	all      map[*carrier.Carrier]bool
	sessions bool                  // a carrier began as a control session
	peers    map[string]*peerState // of all, by name
	waiters  []chan supply
	pending  int
	dialing  int
	slow     []*slowDial // of those that are dialing, oldest first
	failures int
	hurry    chan struct{} // a dial that pauses takes a token, and starts soon
	lastErr  error
	asked    int
	askedAt  time.Time
	draining bool
	shrink   *time.Timer
}

// supply is what a waiter gets.
type supply struct {
	c   *carrier.Carrier
	err error
}

type idleCarrier struct {
	c     *carrier.Carrier
	since time.Time
}

// New makes an empty pool. Start makes it dial.
func New(cfg Config) *Pool {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&cfg.MinIdle, 2)
	set(&cfg.Max, 4096)
	set(&cfg.MaxPending, 1024)
	if cfg.IdleTime == 0 {
		cfg.IdleTime = time.Minute
	}
	if cfg.Backoff == nil {
		cfg.Backoff = dial.FullJitter
	}
	p := &Pool{cfg: cfg, all: map[*carrier.Carrier]bool{}, peers: map[string]*peerState{}, hurry: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Start establishes the first MinIdle carriers, or asks for them.
func (p *Pool) Start() { p.refill() }

// Stats is a snapshot of a Pool.
type Stats struct{ Idle, InUse, Pending, Waiting, Dialing int }

// Stats counts.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Idle: len(p.idle), InUse: len(p.all) - len(p.idle), Pending: p.pending, Waiting: len(p.waiters), Dialing: p.dialing}
}

// Add takes over an idle carrier. It refuses, and closes the carrier, when the
// pool is full, drained or closed.
func (p *Pool) Add(c *carrier.Carrier) error {
	p.mu.Lock()
	var err error
	switch {
	case p.draining:
		err = errDraining
	case len(p.all) >= p.cfg.Max:
		err = errFull
	}
	if err == nil {
		p.all[c] = true
		p.addTo(c.PeerName())
		p.sessions = p.sessions || c.BeganAsSession()
		p.asked = max(p.asked-1, 0)
		c.Observe(p)
		p.file(c)
	}
	p.mu.Unlock()
	if err != nil {
		_ = c.Close()
		return err
	}
	select {
	case <-c.Done(): // it may have ended before Observe
		p.CarrierClosed(c)
	default:
	}
	return nil
}

var (
	errDraining = &carrier.Error{Code: carrier.Draining, Message: "the carrier is drained"}
	errFull     = &carrier.Error{Code: carrier.Overloaded, Message: "too many carriers in use"}
	errPending  = &carrier.Error{Code: carrier.Overloaded, Message: "too many pending dials"}
)

// CarrierIdle is part of Observer.
func (p *Pool) CarrierIdle(c *carrier.Carrier) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.file(c)
}

// file hands an idle carrier to the first waiter, or keeps it; mu is held.
func (p *Pool) file(c *carrier.Carrier) {
	// An acceptor's carrier may have got an OPEN since it was idle. Each change of its
	// state is reported afterwards, so the last report finds what is true.
	if !p.all[c] || !c.Resting() || slices.ContainsFunc(p.idle, func(i idleCarrier) bool { return i.c == c }) {
		return
	}
	if len(p.waiters) > 0 && c.Role() == carrier.Opener {
		w := p.waiters[0]
		p.waiters = p.waiters[1:]
		w <- supply{c: c}
		return
	}
	at := len(p.idle)
	if c.InSession() {
		at = 0
	}
	p.idle = slices.Insert(p.idle, at, idleCarrier{c, time.Now()})
	if p.shrink == nil && len(p.idle) > p.cfg.MinIdle && c.Role() == carrier.Opener && !p.draining {
		p.shrink = time.AfterFunc(p.cfg.IdleTime, p.closeSurplus)
	}
}

// CarrierBusy is part of Observer.
func (p *Pool) CarrierBusy(c *carrier.Carrier) {
	p.mu.Lock()
	p.dropIdle(c)
	p.mu.Unlock()
	p.refill()
}

// CarrierClosed is part of Observer.
func (p *Pool) CarrierClosed(c *carrier.Carrier) {
	p.mu.Lock()
	if p.all[c] {
		delete(p.all, c)
		p.dropFrom(c.PeerName())
	}
	p.dropIdle(c)
	p.mu.Unlock()
	if p.cfg.Ended != nil {
		p.cfg.Ended(c)
	}
	if carrier.CodeOf(c.Err()) == carrier.CutOff {
		p.refillAfter(1)
	} else {
		p.refill()
	}
}

func (p *Pool) dropIdle(c *carrier.Carrier) {
	p.idle = slices.DeleteFunc(p.idle, func(i idleCarrier) bool { return i.c == c })
}

// Open opens a connection on an idle carrier, and waits for one as long as ctx
// allows if there is none. A carrier that turns out to be dead, or its peer to be silent,
// before there was an answer is replaced by another one.
func (p *Pool) Open(ctx context.Context, r carrier.OpenRequest) (*carrier.Conn, error) {
	p.mu.Lock()
	if p.pending >= p.cfg.MaxPending {
		p.mu.Unlock()
		return nil, errPending
	}
	p.pending++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.pending--
		p.mu.Unlock()
	}()
	began := time.Now()
	for attempt := 1; ; attempt++ {
		c, err := p.take(ctx)
		if err != nil {
			return nil, err
		}
		cn, err := p.openOn(ctx, c, r, began)
		if carrier.CodeOf(err) == carrier.Draining && !p.cfg.OnePeer && attempt < maxDraining {
			// The peer is about to stop: this carrier will not open anything any
			// more, while a new one may lead to another peer.
			_ = c.Close()
			continue
		}
		if err == nil || attempt >= maxAttempts || ctx.Err() != nil || c.Err() == nil || carrier.CodeOf(err) == carrier.Protocol {
			return cn, err
		}
	}
}

// Ping waits for the peer to answer an OPEN for carrier.NetworkPing. It returns nil once
// the peer answered, whatever the answer says, and if all carriers are in use: that is no sign
// of a silent peer.
func (p *Pool) Ping(ctx context.Context) error {
	conn, err := p.Open(ctx, carrier.OpenRequest{Network: carrier.NetworkPing})
	if conn != nil {
		_ = conn.Close()
	}
	if carrier.Answered(err) || err == errFull {
		return nil
	}
	return err
}

const (
	// askAgain is when More is believed lost.
	askAgain    = 5 * time.Second
	maxAttempts = 4
	// maxDraining is more carriers than idle ones that one peer usually has.
	maxDraining = 32
)

func (p *Pool) take(ctx context.Context) (*carrier.Carrier, error) {
	p.mu.Lock()
	switch _, next := p.usable(); {
	case p.draining:
		p.mu.Unlock()
		return nil, errDraining
	case ctx.Err() != nil:
		p.mu.Unlock()
		return nil, carrier.ContextError(ctx)
	case next >= 0:
		c := p.idle[next].c
		p.idle = slices.Delete(p.idle, next, next+1)
		p.mu.Unlock()
		p.refill()
		return c, nil
	case len(p.all) >= p.cfg.Max:
		p.mu.Unlock()
		return nil, errFull
	}
	w := make(chan supply, 1)
	p.waiters = append(p.waiters, w)
	p.wake()
	p.mu.Unlock()
	p.refill()
	return p.await(ctx, w)
}

// await waits for a supply. It asks the peer again from time to time: nothing else
// may happen for a while.
func (p *Pool) await(ctx context.Context, w chan supply) (*carrier.Carrier, error) {
	again := time.NewTimer(askAgain)
	defer again.Stop()
	for {
		select {
		case got := <-w:
			return got.c, got.err
		case <-again.C:
			p.refill()
			again.Reset(askAgain)
		case <-ctx.Done():
			return nil, p.giveUp(ctx, w)
		}
	}
}

// giveUp takes a waiter out of the queue and returns what it was handed.
func (p *Pool) giveUp(ctx context.Context, w chan supply) error {
	p.mu.Lock()
	p.waiters = slices.DeleteFunc(p.waiters, func(o chan supply) bool { return o == w })
	err := carrier.ContextError(ctx)
	if p.lastErr != nil && err.Code == carrier.TimedOut {
		err.Message = "no carrier: " + p.lastErr.Error()
	}
	p.mu.Unlock()
	select {
	case got := <-w:
		if got.c != nil {
			p.CarrierIdle(got.c)
		}
	default:
	}
	return err
}
