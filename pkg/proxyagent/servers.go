package proxyagent

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/apiserver-network-proxy/pkg/agent/metrics"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
)

// servers are the proxy servers that the agent has control sessions with, each with a
// pool of carriers of its own.
type servers struct {
	carriers *carrierDialer
	config   pool.Config // of each server's pool
	// onStreams is how many connections are open on konnectivity's streams.
	onStreams atomic.Int64
	// draining ends when this agent should look for no more servers.
	draining context.Context

	mu       sync.Mutex
	sessions map[string]*serverSession // by server ID
	pools    map[*pool.Pool]struct{}   // those of sessions, and those whose connections go on without
	search   search
	changed  chan struct{} // closed, and replaced, when search has news
	count    int           // of servers, as one of them said last; 0 if none did
	total    int           // of servers, when it was asked last
	stopped  bool
}

// serverSession is one proxy server. Two streams to it exist for a moment, when an agent
// that looks for further servers by streams reaches one that it has.
type serverSession struct {
	control  []control  // sessions of both kinds, and carriers that some have become
	pool     *pool.Pool // nil if the server does not speak carriers
	dial     func(context.Context) (*carrier.Carrier, error)
	draining bool
	lostAt   time.Time // the last control session
	renewing bool      // a control session is being dialed in the place of one that has become a carrier
	// unheard says that the server can tell the agent nothing: no dial has led to it for the next
	// control session. elsewhere is until when none is made (elsewhere.go).
	unheard   bool
	elsewhere time.Time
}

// control is what a control session with a server can be told.
type control interface {
	// end ends it.
	end()
	// leave tells the server that the agent has another one. It may block.
	leave()
	// over reports whether nothing can be said on it any more.
	over() bool
}

// listens reports whether the server and the agent can tell each other something; mu is held.
func (k *serverSession) listens() bool {
	return slices.ContainsFunc(k.control, func(c control) bool { return !c.over() })
}

func newServers(draining context.Context, c *carrierDialer, config pool.Config, backoff func(failures int) time.Duration) *servers {
	config.Backoff = backoff
	return &servers{draining: draining, carriers: c, config: config, sessions: map[string]*serverSession{}, pools: map[*pool.Pool]struct{}{},
		search: search{backoff: backoff}, changed: make(chan struct{})}
}

// join notes a control session with a server. leave must be called when it has ended, and
// with it the carrier that it may have become: until then that stands for the one that is
// dialed in its place.
func (s *servers) join(serverID string, speaksCarriers bool, session control) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.sessions[serverID]
	if known == nil {
		known = &serverSession{}
		s.sessions[serverID] = known
		s.search.found()
		klog.Background().Info("Connected to a proxy server", "serverID", serverID, "carriers", speaksCarriers, "connected", len(s.sessions), "servers", s.count)
	}
	known.control = append(known.control, session)
	metrics.Metrics.SetServerConnectionsCount(len(s.sessions))
	s.leaveServers()
	if speaksCarriers && known.pool == nil && !s.stopped {
		var first *carrier.Carrier
		if c, ok := session.(*controlCarrier); ok && c.session.Opens() {
			first = c.session.Carrier()
		}
		known.dial = func(ctx context.Context) (*carrier.Carrier, error) { return s.dial(ctx, serverID) }
		known.pool = s.newPool(serverID, first, known.dial)
	}
}

// rejoin notes a control session in the place of one that has become a carrier, unless the
// agent has left the server meanwhile.
func (s *servers) rejoin(known *serverSession, c *controlCarrier) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[c.serverID()] != known || s.stopped {
		return false
	}
	s.renewed(known, c)
	return true
}

// renewed puts a control session in the place of one that has become a carrier; mu is held.
func (s *servers) renewed(known *serverSession, c *controlCarrier) {
	known.unheard = false
	known.control = append(slices.DeleteFunc(known.control, control.over), c)
	// What concerns other servers is as before, and a busy agent makes many sessions a minute.
	if known.draining && s.serving() {
		go c.leave()
	}
}

// newPool starts to dial what lacks besides the first carrier, which may be nil; mu is held.
func (s *servers) newPool(serverID string, first *carrier.Carrier, dial func(context.Context) (*carrier.Carrier, error)) *pool.Pool {
	config := s.config
	config.Dial = dial
	config.Ended = func(c *carrier.Carrier) {
		if carrier.CodeOf(c.Err()) == carrier.NoAgent && !c.WasAsked() {
			s.forgotten(serverID)
		}
	}
	made := pool.New(config)
	s.pools[made] = struct{}{}
	go func() {
		if first != nil {
			_ = made.Add(first)
		}
		made.Start()
	}()
	return made
}

// awaitControl is how long a server without a control session is kept, if the last one had
// become a carrier and has ended: the next one is being dialed since then.
const awaitControl = 5 * time.Second

// ended is leave for a control carrier that was closed.
func (s *servers) ended(c *controlCarrier) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, last := s.drop(c.serverID(), c)
	switch {
	case last && !c.session.Carries():
		s.remove(c.serverID(), known)
	case last:
		known.lostAt = time.Now()
		time.AfterFunc(awaitControl, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			lost := len(known.control) == 0 && time.Since(known.lostAt) >= awaitControl // or the next one is lost too, since later
			if s.sessions[c.serverID()] == known && lost {
				s.remove(c.serverID(), known)
			}
		})
	}
}

// drop forgets a control session with a server, and reports whether it was the last one with
// it; mu is held.
func (s *servers) drop(serverID string, session control) (known *serverSession, last bool) {
	known = s.sessions[serverID]
	if known == nil || !slices.Contains(known.control, session) {
		return known, false
	}
	known.control = slices.DeleteFunc(known.control, func(other control) bool { return other == session })
	return known, len(known.control) == 0
}

// leave forgets a control session, and with the last one the server.
func (s *servers) leave(serverID string, session control) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left, last := s.drop(serverID, session); last {
		s.remove(serverID, left)
	}
}

// remove forgets a server, and lets connections go on: a control session that breaks says
// nothing about carriers, which are TCP connections of their own. mu is held.
func (s *servers) remove(serverID string, left *serverSession) {
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

// forgotten ends the control sessions with a server that has none of this agent any more, as
// it says when it gets a carrier, before it asks for anything on it. Until they were found
// dead, the server could not reach this cluster.
func (s *servers) forgotten(serverID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.sessions[serverID]; known != nil {
		known.end()
	}
}

// end ends the streams; mu is held.
func (k *serverSession) end() {
	for _, session := range k.control {
		go session.end()
	}
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

// showAgain is the most that an agent waits before it shows its certificate again to a server to
// which no dial has led; it doubles up to showAgainMost.
const (
	showAgain     = 10 * time.Second
	showAgainMost = time.Hour
)

// renew dials a carrier to each server, which shows it the agent's new certificate.
// The server counts it for the older connections too and replaces their carriers.
func (s *servers) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for serverID, known := range s.sessions {
		if known.pool != nil {
			go s.show(serverID, known)
		}
	}
}

// show dials until a carrier was made: an idle agent dials none for weeks, and what it has
// would end with the old certificate.
func (s *servers) show(serverID string, known *serverSession) {
	pause := dial.Jitter(showAgain, showAgainMost)
	for failures := 1; ; failures++ {
		if made, err := known.dial(s.draining); err == nil {
			_ = known.pool.Add(made) // which closes what it does not want
			return
		}
		again := time.NewTimer(pause(failures))
		select {
		case <-s.draining.Done():
			again.Stop()
			return
		case <-again.C:
		}
		s.mu.Lock()
		gone := s.stopped || s.sessions[serverID] != known
		s.mu.Unlock()
		if gone {
			return
		}
	}
}

// drains notes that a server is about to stop, and how many seconds it goes on
// for agents that have no other one.
func (s *servers) drains(serverID string, seconds int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.sessions[serverID]
	if known == nil || known.draining {
		return
	}
	known.draining = true
	klog.Background().Info("A proxy server drains", "serverID", serverID, "seconds", seconds)
	s.search.notice = min(max(time.Duration(seconds)*time.Second, leastNotice), calmWindow)
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
	s.wake()
}

// tellSearch tells the search what kind of servers there are, and how many; mu is held.
func (s *servers) tellSearch() {
	s.search.konnectivity, s.search.total = !s.speaksCarriers(), s.total
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
