package proxyagent

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"sigs.k8s.io/apiserver-network-proxy/pkg/agent"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// A carrier that is dialed for one proxy server may lead to another one behind
// a load balancer. It is kept for that one; after this many the attempt counts
// as failed and the backoff has its turn.
const carrierTries = 8

// maxMisses bounds the backoff of an agent that looks for a further server and
// keeps reaching those that it has.
const maxMisses = 5

// errElsewhere is a failure to reach a certain proxy server.
var errElsewhere = errors.New("the address of the proxy servers keeps leading to others than the one that needs a carrier")

// servers are the proxy servers that the agent has streams to, each with a pool
// of carriers of its own.
type servers struct {
	carriers *carriers
	config   carrier.PoolConfig // of each server's pool
	backoff  func(failures int) time.Duration

	mu       sync.Mutex
	links    map[string]*link           // by server ID
	pools    map[*carrier.Pool]struct{} // those of links, and those whose connections go on without
	failures int                        // attempts to get a stream since the last success
	count    int                        // of servers, as one of them said last; 0 if none did
	stopped  bool
}

// link is one proxy server. Two streams to it exist for a moment, when an agent
// that looks for further servers reaches one that it has.
type link struct {
	streams  int
	end      []func()      // of the streams, and of some that have ended
	pool     *carrier.Pool // nil if the server does not speak carriers
	draining bool
}

func newServers(c *carriers, config carrier.PoolConfig, backoff func(failures int) time.Duration) *servers {
	return &servers{carriers: c, config: config, backoff: backoff, links: map[string]*link{}, pools: map[*carrier.Pool]struct{}{}}
}

// join notes a stream to a server, and how to end it. leave must be called when
// it has ended.
func (s *servers) join(serverID string, speaksCarriers bool, end func()) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.links[serverID]
	if known == nil {
		known = &link{}
		s.links[serverID] = known
		s.failures = 0
	} else {
		s.failures = min(s.failures, maxMisses)
	}
	known.streams++
	known.end = append(known.end, end)
	if speaksCarriers && known.pool == nil && !s.stopped {
		known.pool = s.newPool(serverID, func(ctx context.Context) (*carrier.Carrier, error) { return s.dial(ctx, serverID) })
	}
	return sync.OnceFunc(func() { s.leave(serverID, known) })
}

// newPool starts to dial; mu is held.
func (s *servers) newPool(serverID string, dial func(context.Context) (*carrier.Carrier, error)) *carrier.Pool {
	config := s.config
	config.Backoff = s.backoff
	config.Dial = dial
	config.Ended = func(c *carrier.Carrier) {
		if carrier.CodeOf(c.Err()) == carrier.NoAgent {
			s.forgotten(serverID)
		}
	}
	pool := carrier.NewPool(config)
	s.pools[pool] = struct{}{}
	go pool.Start()
	return pool
}

// leave lets connections go on: a stream that breaks says nothing about
// carriers, which are TCP connections of their own.
func (s *servers) leave(serverID string, left *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left.streams--; left.streams > 0 {
		return
	}
	delete(s.links, serverID)
	s.failures = max(s.failures, 1)
	if left.pool == nil {
		return
	}
	go func() {
		_ = left.pool.Drain(context.Background())
		_ = left.pool.Close()
		s.mu.Lock()
		delete(s.pools, left.pool)
		s.mu.Unlock()
	}()
}

// forgotten ends the streams to a server that has none of this agent any more,
// as it says when it gets a carrier. Until they were found dead, the server
// could not reach this cluster.
func (s *servers) forgotten(serverID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.links[serverID]
	if known == nil {
		return
	}
	for _, end := range known.end {
		go end()
	}
	known.end = nil
}

// more dials n carriers to a server that asked for them.
func (s *servers) more(serverID string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.links[serverID]; known != nil && known.pool != nil {
		go known.pool.Request(n)
	}
}

// drains notes that a server is about to stop. Another one is looked for at
// once.
func (s *servers) drains(serverID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.links[serverID]; known != nil {
		known.draining = true
		s.failures = 0
	}
}

// counted notes how many servers there are.
func (s *servers) counted(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < 1 {
		return
	}
	if n > s.count {
		s.failures = 0 // there is somebody new to be found
	}
	s.count = n
}

// Count is what the servers say themselves, and 1 before any did.
func (s *servers) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.count, 1)
}

// isDraining reports whether a server is about to stop.
func (s *servers) isDraining(serverID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.links[serverID]
	return known != nil && known.draining
}

// dial makes a carrier to one server.
func (s *servers) dial(ctx context.Context, serverID string) (*carrier.Carrier, error) {
	for range carrierTries {
		made, err := s.carriers.dial(ctx)
		if err != nil {
			return nil, err
		}
		name := made.PeerName()
		if name == serverID {
			return made, nil
		}
		s.mu.Lock()
		other := s.links[name]
		s.mu.Unlock()
		if other == nil || other.pool == nil {
			_ = made.Close()
		} else {
			_ = other.pool.Add(made) // which closes what it does not want
		}
	}
	return nil, errElsewhere
}

// dialStream dials for konnectivity's streams. Its own pauses are all alike, so
// a thousand agents that lost a server would come back as one; these are not.
func (s *servers) dialStream(ctx context.Context, _ string) (net.Conn, error) {
	s.mu.Lock()
	failures := s.failures
	s.failures++
	s.mu.Unlock()
	if failures > 0 {
		if err := pause(ctx, s.backoff(failures)); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.carriers.handshakeTimeout)
	defer cancel()
	return s.carriers.connect(ctx)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// inUse is how many connections are open on carriers.
func (s *servers) inUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for pool := range s.pools {
		n += pool.Stats().InUse
	}
	return n
}

// close cuts what is open on carriers.
func (s *servers) close() {
	s.mu.Lock()
	s.stopped = true
	pools := make([]*carrier.Pool, 0, len(s.pools))
	for pool := range s.pools {
		pools = append(pools, pool)
	}
	s.mu.Unlock()
	for _, pool := range pools {
		_ = pool.Close()
	}
}

// counter counts the servers to have streams to: those that inner counts, and
// in place of each that drains one more.
func (s *servers) counter(inner agent.ServerCounter) agent.ServerCounter {
	return drainAware{inner: inner, servers: s}
}

type drainAware struct {
	inner   agent.ServerCounter
	servers *servers
}

func (c drainAware) Count() int {
	n := c.inner.Count()
	if n == 0 {
		return 0 // which means: connect, and find out
	}
	c.servers.mu.Lock()
	defer c.servers.mu.Unlock()
	for _, known := range c.servers.links {
		if known.draining {
			n++
		}
	}
	return n
}
