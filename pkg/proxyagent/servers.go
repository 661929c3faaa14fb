package proxyagent

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
)

// servers are the proxy servers that the agent has control sessions with, each with a pool of
// carriers of its own. One goroutine (run) looks for those that it lacks; each pool dials for
// its server, with a backoff of its own.
type servers struct {
	dialer *carrierDialer
	config pool.Config // of each server's pool
	// draining ends when this agent should look for no more servers; stop ends it.
	draining context.Context
	stop     context.CancelFunc

	mu      sync.Mutex
	known   map[string]*server      // by server ID
	pools   map[*pool.Pool]struct{} // those of known servers, and those whose connections go on without
	search  search
	changed chan struct{} // closed, and replaced, when search has news
	closed  bool
}

// server is one proxy server.
type server struct {
	id    string
	state serverState
	// sessions are the control sessions, and the carriers that some have become. The last one
	// is the newest.
	sessions []controlSession
	pool     *pool.Pool
	dial     func(context.Context) (*carrier.Carrier, error) // a carrier to this server
	// renewal is locked while a control session is dialed in the place of one that has become
	// a carrier.
	renewal sync.Mutex
	// retryAt is when the server is dialed again after dials that led to others.
	retryAt time.Time
	lostAt  time.Time // when the last of sessions ended
}

// controlSession is what a server needs of a carrier.Session.
type controlSession interface {
	Send(carrier.Control) error
	Close() error
	// Over reports whether nothing can be said on it any more.
	Over() bool
}

func newServers(draining context.Context, d *carrierDialer, config pool.Config, backoff func(failures int) time.Duration) *servers {
	config.Backoff = backoff
	s := &servers{dialer: d, config: config, known: map[string]*server{}, pools: map[*pool.Pool]struct{}{},
		search: search{backoff: backoff, total: 1}, changed: make(chan struct{})}
	s.draining, s.stop = context.WithCancel(draining)
	return s
}

// run calls connect whenever it is time to look for a server, until the agent drains.
func (s *servers) run(connect func()) {
	for s.draining.Err() == nil {
		wait, lacking, changed := s.nextDial()
		if lacking && wait <= 0 {
			connect()
			continue
		}
		var due <-chan time.Time
		if lacking {
			due = time.After(wait)
		}
		select {
		case <-due:
		case <-changed:
		case <-s.draining.Done():
		}
	}
}

// nextDial returns whether the agent lacks a server, and how long it has time to look for it;
// changed is closed when the answer is another one.
func (s *servers) nextDial() (wait time.Duration, lacking bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	serving := s.servingLocked()
	if serving >= s.search.total {
		s.search.complete()
		return 0, false, s.changed
	}
	return s.search.next(serving > 0, len(s.known) > 0), true, s.changed
}

// addServerLocked notes a server, which has its pool, with its first control session.
func (s *servers) addServerLocked(server *server, session controlSession) {
	server.sessions = []controlSession{session}
	s.known[server.id] = server
	s.search.found()
	s.dialer.metrics.serverConnections.Set(float64(len(s.known)))
	klog.Background().Info("Connected to a proxy server", "serverID", server.id, "connected", len(s.known), "servers", s.search.total)
	s.settleLocked()
}

// renewSessionLocked puts a control session in the place of one that has become a carrier.
func (s *servers) renewSessionLocked(server *server, session controlSession) {
	server.sessions = append(slices.DeleteFunc(server.sessions, controlSession.Over), session)
	s.applyLocked(server, eventRenewed)
	if server.state == stateLeaving {
		server.tellLeaving()
	}
	s.settleLocked()
}

// startPoolLocked starts to dial what a server lacks besides the first carrier, which may be nil.
func (s *servers) startPoolLocked(server *server, first *carrier.Carrier) {
	config := s.config
	config.OnePeer = true // a dial that takes long has no better one beside it
	config.Dial = server.dial
	config.Ended = func(c *carrier.Carrier) {
		if carrier.CodeOf(c.Err()) == carrier.NoAgent && !c.WasAsked() {
			s.endSessions(server)
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
	server.pool = made
}

// isListeningLocked reports whether the server and the agent can tell each other something.
func (one *server) isListeningLocked() bool {
	return slices.ContainsFunc(one.sessions, func(c controlSession) bool { return !c.Over() })
}

// tellLeaving tells the server that new dials should take another way: by another agent, or by
// another server.
func (one *server) tellLeaving() {
	for _, session := range one.sessions {
		go sendLeaving(session)
	}
}

func sendLeaving(session controlSession) {
	_ = session.Send(agentapi.ControlMessage(agentapi.AgentLeaves, 0))
}

// removeSession notes the end of a control session, and with the last one that of the server. If
// the session had become a carrier, the next one is awaited.
func (s *servers) removeSession(server *server, session controlSession, carried bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(server.sessions, session) {
		return
	}
	server.sessions = slices.DeleteFunc(server.sessions, func(other controlSession) bool { return other == session })
	switch {
	case len(server.sessions) > 0:
	case !carried:
		s.endServerLocked(server)
	default:
		server.lostAt = time.Now()
		time.AfterFunc(agentapi.AwaitSession, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(server.sessions) == 0 && time.Since(server.lostAt) >= agentapi.AwaitSession { // or the next one has ended too, since later
				s.endServerLocked(server)
			}
		})
	}
}

func (s *servers) endServerLocked(server *server) {
	s.applyLocked(server, eventEnded)
	s.settleLocked()
}

// endSessions ends the control sessions with a server that has none of this agent any more, as
// it says when it gets a carrier, before it asks for anything on it. Until they were found
// dead, the server could not reach this cluster.
func (s *servers) endSessions(server *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, session := range server.sessions {
		go func() { _ = session.Close() }()
	}
	server.sessions = nil
	s.endServerLocked(server)
}

// removeLocked forgets a server, and lets connections go on: a control session that breaks says
// nothing about carriers, which are TCP connections of their own.
func (s *servers) removeLocked(server *server, before serverState) {
	delete(s.known, server.id)
	s.dialer.metrics.serverConnections.Set(float64(len(s.known)))
	klog.Background().Info("The tunnel to a proxy server has ended", "serverID", server.id, "state", before.String(), "connected", len(s.known), "servers", s.search.total)
	s.restartSearchLocked(1)
	go func() {
		_ = server.pool.Drain(context.Background())
		_ = server.pool.Close()
		s.mu.Lock()
		delete(s.pools, server.pool)
		s.mu.Unlock()
	}()
}

// requestCarriers dials n carriers to a server that asked for them, since users wait. One that
// drains may be out of reach, if its Service leads to other servers by now: then it is
// time to have one of those.
func (s *servers) requestCarriers(server *server, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if server.state == stateGone {
		return
	}
	server.retryAt = time.Time{}
	go server.pool.Request(n)
	if server.state.drains() && s.servingLocked() == 0 {
		s.search.hurry()
		s.wakeLocked()
	}
}

// noteDraining notes that a server is about to stop, and how many seconds it goes on
// for agents that have no other one.
func (s *servers) noteDraining(server *server, seconds int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if server.state == stateGone || server.state.drains() {
		return
	}
	klog.Background().Info("A proxy server drains", "serverID", server.id, "seconds", seconds)
	s.search.notice = min(max(time.Duration(seconds)*time.Second, leastNotice), calmWindow)
	s.applyLocked(server, eventDrains)
	s.settleLocked()
}

// noteTotal notes how many servers there are. A server says it again when a
// further one has come, without another number if that is one that was missing.
func (s *servers) noteTotal(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteTotalLocked(n)
}

func (s *servers) noteTotalLocked(n int) {
	if n < 1 {
		return
	}
	s.search.total = n
	s.dialer.metrics.servers.Set(float64(n))
	s.settleLocked() // it may be fewer than before
	s.restartSearchLocked(0)
}

// restartSearchLocked lets the search begin anew.
func (s *servers) restartSearchLocked(misses int) {
	s.search.renew(misses, s.servingLocked() > 0, len(s.known) > 0)
	s.wakeLocked()
}

// wakeLocked says that the time of the next dial has changed.
func (s *servers) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// applyLocked changes a server's state, and does what follows from the new one.
func (s *servers) applyLocked(server *server, event serverEvent) {
	before := server.state
	server.state = transitions[before][event]
	if server.state == before {
		return
	}
	switch {
	case server.state == stateGone:
		s.removeLocked(server, before)
	case server.state == stateLeaving:
		server.tellLeaving()
	case event == eventDrains, event == eventMissed:
		s.restartSearchLocked(0)
	}
}

// settleLocked leaves the servers that the agent need not have any more: it tells those that
// drain not to wait for it, if another one serves, and closes what is unused of those that cannot
// be told.
func (s *servers) settleLocked() {
	serving, event := s.servingLocked(), eventAlone
	if serving > 0 {
		event = eventOthersServe
	}
	for _, server := range s.known {
		s.applyLocked(server, event)
		if serving >= s.search.total && server.state.isHalfOpen() && server.pool.Stats().InUse == 0 {
			s.applyLocked(server, eventSpare)
		}
	}
}

// servingLocked counts the servers of which none needs to take the place.
func (s *servers) servingLocked() (n int) {
	for _, server := range s.known {
		if server.state == stateServing {
			n++
		}
	}
	return n
}

// isGoingAway reports whether a connection should be replaced by one on another way: a proxy
// server that it comes through is about to stop. The server to which the agent is connected,
// which is the first of them, may be about to stop when it can tell the agent nothing.
func (s *servers) isGoingAway(through []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, id := range through {
		server := s.known[id]
		mute := i == 0 && id != "" && (server == nil || server.state.isHalfOpen()) && s.servingLocked() > 0
		if mute || server != nil && server.state.drains() {
			return true
		}
	}
	return false
}

// countConnected returns how many proxy servers there are sessions with.
func (s *servers) countConnected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known)
}

// countOpen returns how many connections are open.
func (s *servers) countOpen() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.pools {
		n += p.Stats().InUse
	}
	return n
}

// close ends the control sessions, and cuts what is open on carriers.
func (s *servers) close() {
	s.stop()
	s.mu.Lock()
	s.closed = true
	pools := make([]*pool.Pool, 0, len(s.pools))
	for p := range s.pools {
		pools = append(pools, p)
	}
	for _, server := range s.known {
		for _, session := range server.sessions {
			go func() { _ = session.Close() }()
		}
	}
	s.mu.Unlock()
	for _, p := range pools {
		_ = p.Close()
	}
}
