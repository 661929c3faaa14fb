package proxyagent

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/apiserver-network-proxy/pkg/agent/metrics"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
)

// A carrier that is dialed for one proxy server may lead to another one behind
// a load balancer. It is kept for that one; after this many the attempt counts
// as failed and the backoff has its turn. Of many servers, one in a hundred attempts
// fails then.
const (
	carrierTries     = 8
	carrierTriesEach = 4 // for each server that there is
)

// errElsewhere is a failure to reach a certain proxy server.
var errElsewhere = errors.New("the address of the proxy servers keeps leading to others than the one that needs a carrier")

// servers are the proxy servers that the agent has control sessions with, each with a
// pool of carriers of its own.
type servers struct {
	carriers *carrierDialer
	config   pool.Config // of each server's pool
	// onStreams is how many connections are open on konnectivity's streams.
	onStreams atomic.Int64

	mu       sync.Mutex
	sessions map[string]*serverSession // by server ID
	pools    map[*pool.Pool]struct{}   // those of sessions, and those whose connections go on without
	search   search
	share    share
	changed  chan struct{} // closed, and replaced, when search has news
	count    int           // of servers, as one of them said last; 0 if none did
	stopped  bool
}

// serverSession is one proxy server. Two streams to it exist for a moment, when an agent
// that looks for further servers by streams reaches one that it has.
type serverSession struct {
	streams  int        // control sessions of both kinds
	control  []control  // those, and some that have ended
	pool     *pool.Pool // nil if the server does not speak carriers
	draining bool
	// findsPeers says that the server reaches agents through other servers, leaving that
	// another one is to take its place, and parted that it has been told (share.go).
	findsPeers, leaving, parted bool
	// elsewhere is until when no carrier is dialed, since dials did not lead here.
	elsewhere time.Time
}

// control is what a control session with a server can be told.
type control interface {
	// end ends it.
	end()
	// leave tells the server that the agent has another one. It may block.
	leave()
}

func newServers(c *carrierDialer, config pool.Config, backoff func(failures int) time.Duration) *servers {
	config.Backoff = backoff
	return &servers{carriers: c, config: config, sessions: map[string]*serverSession{}, pools: map[*pool.Pool]struct{}{},
		search: search{backoff: backoff}, changed: make(chan struct{})}
}

// join notes a control session with a server. leave must be called when it has ended.
func (s *servers) join(serverID string, speaksCarriers bool, session control) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.sessions[serverID]
	if known == nil {
		known = &serverSession{}
		s.sessions[serverID] = known
		delete(s.share.left, serverID)
		s.search.found()
		klog.Background().Info("Connected to a proxy server", "serverID", serverID, "carriers", speaksCarriers, "connected", len(s.sessions), "servers", s.count)
	}
	known.streams++
	known.control = append(known.control, session)
	metrics.Metrics.SetServerConnectionsCount(len(s.sessions))
	s.leaveServers()
	s.trimLater()
	if speaksCarriers && known.pool == nil && !s.stopped {
		known.pool = s.newPool(serverID, func(ctx context.Context) (*carrier.Carrier, error) { return s.dial(ctx, serverID) })
	}
	return sync.OnceFunc(func() { s.leave(serverID, known) })
}

// newPool starts to dial; mu is held.
func (s *servers) newPool(serverID string, dial func(context.Context) (*carrier.Carrier, error)) *pool.Pool {
	config := s.config
	config.Dial = dial
	config.Ended = func(c *carrier.Carrier) {
		if carrier.CodeOf(c.Err()) == carrier.NoAgent {
			s.forgotten(serverID)
		}
	}
	made := pool.New(config)
	s.pools[made] = struct{}{}
	go made.Start()
	return made
}

// leave lets connections go on: a control session that breaks says nothing about
// carriers, which are TCP connections of their own.
func (s *servers) leave(serverID string, left *serverSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left.streams--; left.streams > 0 {
		return
	}
	delete(s.sessions, serverID)
	metrics.Metrics.SetServerConnectionsCount(len(s.sessions))
	klog.Background().Info("The tunnel to a proxy server has ended", "serverID", serverID, "draining", left.draining, "connected", len(s.sessions), "servers", s.count)
	s.news(1)
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

// forgotten ends the control sessions with a server that has none of this agent any more,
// as it says when it gets a carrier. Until they were found dead, the server
// could not reach this cluster.
func (s *servers) forgotten(serverID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.sessions[serverID]; known != nil {
		known.end()
	}
}

// end ends the streams; mu is held.
func (k *serverSession) end() {
	for _, stream := range k.control {
		go stream.end()
	}
	k.control = nil
}

// more dials n carriers to a server that asked for them, since users wait. One that
// drains may be out of reach, if its Service leads to other servers by now: then it is
// time to have one of those.
func (s *servers) more(serverID string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.sessions[serverID]
	if known == nil || known.pool == nil {
		return
	}
	known.elsewhere = time.Time{}
	go known.pool.Request(n)
	if known.draining && !s.serving() {
		s.search.hurry()
		s.wake()
	}
}

// renew dials a carrier to each server, which shows it the agent's new certificate.
// The server counts it for the older connections too and replaces their carriers.
func (s *servers) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.sessions {
		if known.pool != nil {
			go known.pool.Request(1)
		}
	}
}

// drains notes that a server is about to stop, and how many seconds it goes on
// for agents that have no other one; 0 if it did not say.
func (s *servers) drains(serverID string, seconds int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.sessions[serverID]
	if known == nil || known.draining {
		return
	}
	known.draining = true
	klog.Background().Info("A proxy server drains", "serverID", serverID, "seconds", seconds)
	s.search.notice = defaultNotice
	if seconds > 0 {
		s.search.notice = min(time.Duration(seconds)*time.Second, calmWindow)
	}
	s.leaveServers()
	s.news(0)
}

// counted notes how many servers there are. A server says it again when a
// further one has come, without another number if that is one that was missing.
func (s *servers) counted(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < 1 {
		return
	}
	s.count = n
	s.news(0)
}

// serving reports whether a server that does not drain is connected; mu is held.
func (s *servers) serving() bool {
	for _, known := range s.sessions {
		if !known.draining {
			return true
		}
	}
	return false
}

// speaksCarriers reports whether a server is one of ours; mu is held.
func (s *servers) speaksCarriers() bool {
	for _, known := range s.sessions {
		if known.pool != nil {
			return true
		}
	}
	return false
}

// news lets the search begin anew; mu is held.
func (s *servers) news(misses int) {
	s.tellSearch()
	s.search.renew(misses, s.serving(), len(s.sessions) > 0)
	s.trimLater()
	s.wake()
}

// wake says that the time of the next dial has changed; mu is held.
func (s *servers) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Count is what the servers say themselves, and 1 before any did.
func (s *servers) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.count, 1)
}

// dial makes a carrier to one server. After many dials that led to others the
// server may be gone without a word: then the others are spared for a while,
// unless the server itself asks for carriers.
func (s *servers) dial(ctx context.Context, serverID string) (*carrier.Carrier, error) {
	s.mu.Lock()
	known := s.sessions[serverID]
	wait := known != nil && time.Now().Before(known.elsewhere)
	tries := max(carrierTries, carrierTriesEach*s.share.total)
	s.mu.Unlock()
	if wait {
		return nil, errElsewhere
	}
	for range tries {
		made, err := s.carriers.dial(ctx)
		if err != nil {
			return nil, err
		}
		name := made.PeerName()
		if name == serverID {
			return made, nil
		}
		s.mu.Lock()
		other := s.sessions[name]
		s.mu.Unlock()
		if other == nil || other.pool == nil {
			_ = made.Close()
		} else {
			_ = other.pool.Add(made) // which closes what it does not want
		}
	}
	s.mu.Lock()
	if known != nil {
		known.elsewhere = time.Now().Add(s.search.within(elsewhereWindow))
	}
	s.mu.Unlock()
	return nil, errElsewhere
}

// dialStream dials for konnectivity's streams.
func (s *servers) dialStream(ctx context.Context, _ string) (net.Conn, error) {
	s.dialed()
	if s.isStopped() {
		return nil, net.ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, s.carriers.handshakeTimeout)
	defer cancel()
	return s.carriers.connect(ctx)
}

func (s *servers) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

func (s *servers) dialed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.search.dialed(s.serving())
	s.stay()
}

// open is how many connections are open, on carriers and on konnectivity's streams.
func (s *servers) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int(s.onStreams.Load())
	for p := range s.pools {
		n += p.Stats().InUse
	}
	return n
}

// close ends the control sessions, and cuts what is open on carriers.
func (s *servers) close() {
	s.mu.Lock()
	s.stopped = true
	s.news(0)
	pools := make([]*pool.Pool, 0, len(s.pools))
	for p := range s.pools {
		pools = append(pools, p)
	}
	for _, known := range s.sessions {
		for _, c := range known.control {
			go c.end()
		}
	}
	s.mu.Unlock()
	for _, p := range pools {
		_ = p.Close()
	}
}
