package proxyserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/liveness"
)

const (
	// peerLookup is how often peers' names are resolved. A dial that no peer can
	// serve asks for it too, but not more often than peerLookupLeast.
	peerLookup      = 5 * time.Second
	peerLookupLeast = time.Second
	// forgetAfter is how many answers in a row must lack a peer's address until it is forgotten.
	forgetAfter = 2
	// peerHedgeAfter is how long one peer may take before the next one is asked as
	// well, and peerReach how long a dial to one may take.
	peerHedgeAfter = liveness.PingAfter + liveness.PingTimeout
	peerReach      = time.Second
	// peerSelf is how often an address that leads back here is tried again: behind a
	// load balancer it may lead elsewhere later.
	peerSelf = 30 * time.Second
	// followAgain is the pause before a peer is asked again which hosts it has agents of.
	followAgain = time.Second
	// surelySelf is how often an address must lead back here, and never elsewhere, to count as
	// this server's own. Behind a load balancer it may lead here now and then.
	surelySelf = 8
)

// peers are the other proxy servers.
//
// Agents connect to every proxy server, which they find one by one, by server ID and count
// (package proxyagent). The count may change while a server runs (--server-count-file).
// Agents are told when it does, and when a peer is reached for the first time,
// since it may be one that was missing. A server that has no agent of a cluster sends the dial
// to a peer (--peers) with hop count 1 and its own name, which is never sent on; the agent
// learns the name, and moves connections away when that server drains. Peers are all addresses
// of a name, in Kubernetes of a headless Service. This needs no right on the API and includes
// servers that are starting or draining. They reach each other's client port with their own
// serving certificate, which has the role of a peer.
//
// Each server holds a connection to each peer open on which that one says which hosts it has
// agents of, everything at first and then every change (directory.go). A dial
// is one hop therefore, however many servers there are: the first peer that is asked has an
// agent. News that is out of date costs a refusal, a round trip within the hub, and the next
// peer: those are asked last that have said that they have no agent, and a peer that has
// not said anything yet before them. After 2 s without an answer the next one
// is asked too, and the peer that accepted last comes first. A cluster without any agent
// costs a refusal of every peer. Agents here that have said that they leave are asked
// after peers that have one: their process may end, and the connection with it. A peer's
// hosts take about 300 bytes for each of its clusters, 1.5 MiB for 5,000 clusters. The
// alternative, to ask all peers at once, would have every server work on every dial, and agents
// open connections that nobody wants.
type peers struct {
	addresses []string
	self      string // this server's ID
	limits    Limits
	dial      func(ctx context.Context, address, serverName string) (*carrier.Carrier, error)
	lookup    func(ctx context.Context, host string) ([]string, error)
	arrived   func()        // a peer was reached that was not before; nil needs no call
	refused   func()        // a peer that was asked has no agent; nil needs no call
	now       chan struct{} // asks for a lookup
	resolved  chan struct{} // closed after the first one

	mu    sync.Mutex
	known map[string]*peerServer // by resolved address
	last  map[string]*peerServer // who served a host last
}

type peerServer struct {
	address, host string
	pool          *pool.Pool
	alive         *liveness.Peer
	met           atomic.Bool  // it was reached at least once
	selves        atomic.Int32 // how often in a row it was this very server
	told          told         // guarded by mu of peers
	missing       int          // answers of DNS in a row that lack it; guarded by mu of peers
}

// self reports whether the address is this server's own, which one that ever led to a peer is
// not: of many dials at once, those that a load balancer leads back here may end last.
func (one *peerServer) self() bool { return !one.met.Load() && one.selves.Load() >= surelySelf }

var errSelf = errors.New("this is the server itself")

// run keeps carriers to all peers until ctx is done.
func (p *peers) run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	defer p.close()
	least := time.NewTicker(peerLookupLeast)
	defer least.Stop()
	last := ""
	for first := true; ; first = false {
		if err := p.resolve(ctx); err != nil && err.Error() != last && ctx.Err() == nil {
			last = err.Error()
			logger.Error(err, "Keeping the peers that are known")
		} else if err == nil {
			last = ""
		}
		if first {
			close(p.resolved)
		}
		regular := time.NewTimer(peerLookup)
		select {
		case <-ctx.Done():
		case <-regular.C:
		case <-p.now:
		}
		regular.Stop()
		select {
		case <-ctx.Done():
			return nil
		case <-least.C:
		}
	}
}

// resolve adds and removes peers. A name that cannot be resolved keeps all that
// are known, since it is not clear whose addresses they are. One answer that lacks an address
// removes nothing: it may be truncated, or from a cache that has not heard yet.
func (p *peers) resolve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, peerLookup)
	defer cancel()
	found := map[string]string{} // address to host
	var problems []error
	for _, address := range p.addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		ips, err := p.lookup(ctx, host)
		if err != nil {
			problems = append(problems, fmt.Errorf("resolving peer %q: %w", host, err))
		}
		for _, ip := range ips {
			found[net.JoinHostPort(ip, port)] = host
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, host := range found {
		if p.known[address] == nil {
			p.known[address] = p.newPeer(address, host)
		}
		p.known[address].missing = 0
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	for address, one := range p.known {
		if found[address] != "" {
			continue
		}
		if one.missing++; one.missing >= forgetAfter {
			p.forget(one)
		}
	}
	return nil
}

func (p *peers) newPeer(address, host string) *peerServer {
	made := &peerServer{address: address, host: host}
	made.pool = pool.New(pool.Config{
		MinIdle: p.limits.IdleCarriers + 1, Max: math.MaxInt32, MaxPending: math.MaxInt32, IdleTime: p.limits.CarrierIdleTime, OnePeer: true,
		Backoff: func(failures int) time.Duration {
			if made.self() {
				return peerSelf
			}
			return min(dial.FullJitter(failures), peerHedgeAfter)
		},
		Dial: func(ctx context.Context) (*carrier.Carrier, error) { return p.reach(ctx, made) },
	})
	made.alive = liveness.New(made.pool.Ping)
	made.pool.Start()
	go p.follow(made)
	return made
}

// reach makes a carrier to a peer that is not this server.
func (p *peers) reach(ctx context.Context, one *peerServer) (*carrier.Carrier, error) {
	c, err := p.dial(ctx, one.address, one.host)
	if err != nil {
		return nil, err
	}
	if c.PeerName() == p.self {
		one.selves.Add(1)
		_ = c.Close()
		return nil, errSelf
	}
	if !one.met.Swap(true) && p.arrived != nil {
		p.arrived()
	}
	return c, nil
}

// forget lets connections through a peer end; mu is held.
func (p *peers) forget(gone *peerServer) {
	delete(p.known, gone.address)
	for host, last := range p.last {
		if last == gone {
			delete(p.last, host)
		}
	}
	gone.alive.Forget()
	go func() {
		_ = gone.pool.Drain(context.Background())
		_ = gone.pool.Close()
	}()
}

func (p *peers) close() {
	p.mu.Lock()
	known := p.known
	p.known = map[string]*peerServer{}
	p.mu.Unlock()
	for _, one := range known {
		one.alive.Forget()
		_ = one.pool.Close()
	}
}

// stats adds the carriers to all peers up.
func (p *peers) stats() (sum pool.Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.known {
		stats := one.pool.Stats()
		sum.Idle, sum.InUse = sum.Idle+stats.Idle, sum.InUse+stats.InUse
	}
	return sum
}

// reached reports whether there is a carrier to the peer.
func (one *peerServer) reached() bool {
	stats := one.pool.Stats()
	return stats.Idle+stats.InUse > 0
}

// follow hears which hosts a peer has agents of, until the peer is forgotten. It asks
// only a peer that is reached: an address may be this server's own.
func (p *peers) follow(one *peerServer) {
	ctx := one.alive.Context()
	for ctx.Err() == nil {
		if one.reached() {
			_ = p.hear(ctx, one)
			p.mu.Lock()
			one.told = told{draining: one.told.draining}
			p.mu.Unlock()
		}
		timer := time.NewTimer(followAgain)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// hear reads the news of a peer until it says no more.
func (p *peers) hear(ctx context.Context, one *peerServer) error {
	conn, err := one.pool.Open(ctx, carrier.OpenRequest{Network: networkDirectory, Address: directoryAddress, Hops: 1})
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	from := &newsReader{from: conn}
	for in := json.NewDecoder(from); ; {
		from.left = maxNews
		var news directoryNews
		if err := in.Decode(&news); err != nil {
			return fmt.Errorf("reading which clusters a peer has: %w", err)
		}
		p.note(one, news)
	}
}

// note adds news of a peer to what it has said.
func (p *peers) note(one *peerServer, news directoryNews) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &one.told
	if t.hosts == nil {
		t.hosts = map[string]struct{}{}
	}
	for _, host := range news.Has {
		t.hosts[host] = struct{}{}
	}
	for _, host := range news.Lacks {
		delete(t.hosts, host)
		if p.last[host] == one {
			delete(p.last, host)
		}
	}
	t.complete, t.draining = t.complete || news.Complete, news.Draining
}
