package proxyserver

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// candidates returns the peers in the order in which to ask them: those that have an agent
// of the host, those that do not say, those that said that they have none, since it may
// have come in this moment, and last those that cannot be reached or do not answer. Of the
// first and of the second, the one that served the host last comes first.
func (p *peers) candidates(host string) []*peerServer {
	p.mu.Lock()
	defer p.mu.Unlock()
	var have, unknown, lack, unreached []*peerServer
	for _, one := range p.known {
		switch has := one.told.has(host); {
		case one.self():
		case !one.reached() || one.alive.IsSuspect():
			unreached = append(unreached, one)
		case has && !one.told.draining:
			have = append(have, one)
		case has || !one.told.complete:
			unknown = append(unknown, one)
		default:
			lack = append(lack, one)
		}
	}
	for _, likely := range [][]*peerServer{have, unknown} {
		rand.Shuffle(len(likely), func(i, j int) { likely[i], likely[j] = likely[j], likely[i] })
		for i, one := range likely {
			if one == p.last[host] {
				likely[0], likely[i] = likely[i], likely[0]
			}
		}
	}
	return slices.Concat(have, unknown, lack, unreached)
}

// have reports whether a peer that goes on said that it has an agent of an address.
func (p *peers) have(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.known {
		if one.told.has(host) && !one.told.draining && !one.alive.IsSuspect() {
			return true
		}
	}
	return false
}

// open asks one peer after the other, and the next one as well if one takes long: the
// peer or its agent may have died silently. It calls silent then.
func (p *peers) open(ctx context.Context, request carrier.OpenRequest, silent func()) (*carrier.Conn, error) {
	host, _, err := net.SplitHostPort(request.Address)
	if err != nil {
		return nil, errNoAgent
	}
	select {
	case <-p.resolved:
	case <-ctx.Done():
		return nil, errNoAgent
	}
	request.Via = p.self
	r := &peerRoute{peers: p, host: host, request: request, silent: silent, asked: map[*peerServer]*lastAsked{}}
	conn, err := hedge(ctx, r.next)
	if err == nil || !servedElsewhere(err) {
		return conn, err
	}
	select {
	case p.now <- struct{}{}: // a new peer may have it
	default:
	}
	return nil, errNoAgent
}

// peerRoute is the order in which peers are asked for one dial. One that had no agent
// is asked again as long as the dial waits for another one.
type peerRoute struct {
	peers   *peers
	host    string
	request carrier.OpenRequest
	silent  func()
	asked   map[*peerServer]*lastAsked
}

// next is what hedge tries next.
func (r *peerRoute) next() attempt {
	for _, one := range r.peers.candidates(r.host) {
		asked := r.asked[one]
		if asked == nil {
			asked = &lastAsked{}
			r.asked[one] = asked
		}
		if asked.begin() {
			return func(ctx context.Context, silent func()) (*carrier.Conn, error) {
				defer asked.end()
				return r.peers.ask(ctx, one, r.request, func() { silent(); r.silent() })
			}
		}
	}
	return nil
}

// ask opens a connection through one peer. A peer without carriers is dialed now: its
// pool may be waiting in a backoff, while the peer is back.
func (p *peers) ask(ctx context.Context, one *peerServer, request carrier.OpenRequest, silent func()) (*carrier.Conn, error) {
	slow := time.AfterFunc(peerHedgeAfter, silent)
	defer slow.Stop()
	if !one.reached() {
		reach, cancel := context.WithTimeout(ctx, peerReach)
		c, err := p.reach(reach, one)
		cancel()
		if err == nil {
			err = one.pool.Add(c)
		}
		if err != nil {
			return nil, &carrier.Error{Code: carrier.CutOff, Message: err.Error(), Err: err}
		}
	}
	stop := one.alive.AwaitAnswer(func() {})
	defer stop()
	conn, err := one.pool.Open(ctx, request)
	if carrier.Answered(err) {
		one.alive.Heard()
	}
	if carrier.CodeOf(err) == carrier.NoAgent && p.refused != nil {
		p.refused()
	}
	if err == nil {
		p.served(request.Address, one)
	}
	return conn, err
}

// served remembers which peer served a host last: the agent of another one may be silent.
func (p *peers) served(address string, one *peerServer) {
	host, _, _ := net.SplitHostPort(address)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[host] = one
}
