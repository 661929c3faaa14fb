package proxyserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// networkDirectory is the network of an OPEN by which a peer asks which hosts have agents
// here. No cluster can be called what directoryAddress says.
const (
	networkDirectory = "directory"
	directoryAddress = "_directory:0"
)

// directoryChunk is how many hosts are in one directoryNews at most.
const directoryChunk = 500

// directoryNews is what has changed since the last one, as a line of JSON. The first
// ones have everything.
type directoryNews struct {
	Has   []string `json:"has,omitempty"`   // hosts of agents that have come
	Lacks []string `json:"lacks,omitempty"` // and of the last agents that have gone
	// Complete says that nothing is missing, though it may be out of date.
	Complete bool `json:"complete,omitempty"`
	Draining bool `json:"draining,omitempty"` // the server is about to stop
}

// follower is a peer that is told of the agents here.
type follower struct {
	mu      sync.Mutex
	hosts   map[string]bool // that it was not told of; whether there is an agent
	changed chan struct{}   // has a token if there is something to tell
}

// note adds hosts, or none if something else has changed.
func (f *follower) note(hosts []string, present bool) {
	f.mu.Lock()
	for _, host := range hosts {
		f.hosts[host] = present
	}
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// take moves hosts to news, as many as fit.
func (f *follower) take(news *directoryNews) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for host, present := range f.hosts {
		if len(news.Has)+len(news.Lacks) == directoryChunk {
			return
		}
		if delete(f.hosts, host); present {
			news.Has = append(news.Has, host)
		} else {
			news.Lacks = append(news.Lacks, host)
		}
	}
	news.Complete = true
}

// follow adds a follower, which is told of everything at first.
func (a *agentRegistry) follow() *follower {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := &follower{hosts: make(map[string]bool, len(a.hosts)), changed: make(chan struct{}, 1)}
	for host := range a.hosts {
		f.hosts[host] = true
	}
	a.followers[f] = struct{}{}
	return f
}

func (a *agentRegistry) unfollow(f *follower) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.followers, f)
}

// tellFollowers notes what has changed; mu is held.
func (a *agentRegistry) tellFollowers(hosts []string, present bool) {
	for f := range a.followers {
		f.note(hosts, present)
	}
}

// news is what a follower is told next.
func (a *agentRegistry) news(f *follower) (news directoryNews) {
	a.mu.RLock()
	news.Draining = a.draining
	a.mu.RUnlock()
	f.take(&news)
	return news
}

// serveDirectory tells a peer which hosts have agents here until either side ends it.
// Which clusters there are is for peers alone.
func (s *Server) serveDirectory(request *carrier.Pending) {
	if callerOn(request.Carrier().Transport()).role != identity.RolePeer {
		_ = request.Refuse(&carrier.Error{Code: carrier.Denied, Message: "only proxy servers may ask which clusters have agents here"})
		return
	}
	select {
	case <-s.untold:
		_ = request.Refuse(&carrier.Error{Code: carrier.Draining, Message: "the proxy server stops"})
		return
	default:
	}
	conn, err := request.Accept(carrier.Endpoints{})
	if err != nil {
		return
	}
	defer conn.Close()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, conn)
	}()
	f := s.registry.follow()
	defer s.registry.unfollow(f)
	out := json.NewEncoder(conn)
	for {
		news := s.registry.news(f)
		if err := out.Encode(news); err != nil {
			return
		}
		if !news.Complete {
			continue
		}
		select {
		case <-f.changed:
		case <-gone:
			return
		case <-s.untold:
			return
		}
	}
}

const (
	// followAgain is the pause before a peer is asked again which hosts it has agents of.
	followAgain = time.Second
	// maxNews is how long one message of a peer may be: directoryChunk hosts of the longest
	// names take an eighth of it.
	maxNews = 1 << 20
)

var errLongNews = errors.New("the message is too long")

// newsReader ends when a message is too long: a decoder would hold all of it in memory.
type newsReader struct {
	from io.Reader
	left int // for the message that is being read
}

func (r *newsReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, errLongNews
	}
	n, err := r.from.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// told is what a peer says of itself. When it cannot be heard any more, its agents are
// not known any more.
type told struct {
	complete bool                // nothing is missing
	hosts    map[string]struct{} // of the agents that it has
	draining bool
}

// has reports whether the peer has an agent of a host.
func (t *told) has(host string) bool {
	_, has := t.hosts[host]
	return has
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
