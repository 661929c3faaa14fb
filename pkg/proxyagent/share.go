package proxyagent

import (
	"math/rand/v2"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
)

const (
	// leaveAfter is how long an agent goes on serving a proxy server that it leaves: dials
	// for it may be on their way there.
	leaveAfter = 5 * time.Second
	// remembered is how long the name of a proxy server is, which the agent is not
	// connected to any more while connections through it may go on.
	remembered = time.Hour
)

// share is to how many of the proxy servers the agent connects, and what is left of
// those that it had more of.
type share struct {
	perAgent int                  // --servers-per-agent; 0 means the default
	total    int                  // proxy servers that there are, when it was asked last
	trimming bool                 // a timer calls trim
	left     map[string]time.Time // servers that the agent moved away from, and when
	stopping map[int]time.Time    // agentapi.NumberOf servers that drain, as others say, and since when
}

// wantedOf is how many of n proxy servers to connect to. Fewer than all will do only
// where each of them reaches the agent through the others; mu is held.
func (s *servers) wantedOf(n int) int {
	for _, known := range s.sessions {
		if !known.findsPeers {
			return n
		}
	}
	return agentapi.WantedServers(n, s.share.perAgent)
}

// findsPeers notes that a server reaches the agents of its peers.
func (s *servers) findsPeers(serverID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.sessions[serverID]; known != nil {
		known.findsPeers = true
		s.leaveServers()
		s.trimLater()
	}
}

// tellSearch tells the search what kind of servers the agent has; mu is held.
func (s *servers) tellSearch() {
	s.search.konnectivity, s.search.moving = !s.speaksCarriers(), false
	for _, known := range s.sessions {
		s.search.moving = s.search.moving || known.leaving && !known.parted
	}
}

// stays reports whether nobody has to take the server's place; mu is held.
func (k *serverSession) stays() bool { return !k.draining && !k.leaving && !k.unheard }

// staying is how many servers the agent has that it does not leave; mu is held.
func (s *servers) staying() (n int) {
	for _, known := range s.sessions {
		if known.stays() {
			n++
		}
	}
	return n
}

// move looks for another server in the place of one that asks for that, because it has
// more agents than others, and says how many servers there are; 0 if it does not. The agent
// may know less: another server has not heard of it yet, or nobody has counted since this one
// said it. An agent that wants all servers stays.
func (s *servers) move(serverID string, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if total == 0 {
		total = s.share.total
	}
	known := s.sessions[serverID]
	if known == nil || known.draining || known.leaving || s.wantedOf(total) >= total {
		return
	}
	known.leaving = true
	s.leaveServers()
	s.news(0)
}

// stay gives up moving, after as many dials in vain as an agent makes at its usual pace:
// the address of the proxy servers may lead this agent to those that it has and to no
// others; mu is held.
func (s *servers) stay() {
	if s.search.misses <= calmMisses {
		return
	}
	for _, known := range s.sessions {
		known.leaving = known.leaving && known.parted
	}
	s.trimLater()
}

// enough reports whether the agent has as many servers as it wants besides those that it
// leaves; mu is held.
func (s *servers) enough() bool { return s.staying() >= s.wantedOf(max(s.share.total, 1)) }

// leaveServers tells the servers that drain to go without waiting for this agent, if it
// has another one, and leaves those that asked it to move, if it has as many as it
// wants besides, when they can be told. A server that cannot be told for long is left without
// a word: its unused carriers are closed, and open connections continue. Unless it drains it is
// kept as long as there are any, by which it knows the agent. mu is held.
func (s *servers) leaveServers() {
	serving, enough := s.serving(), s.enough()
	for serverID, known := range s.sessions {
		switch {
		case known.unheard:
			if known.draining && serving || enough && known.unused() {
				s.remove(serverID, known)
			}
		case known.draining && serving:
			for _, stream := range known.control {
				go stream.leave()
			}
		case known.leaving && !known.parted && enough && known.listens():
			s.part(serverID, known)
		}
	}
}

// part leaves a server that goes on: new dials go elsewhere at once, and open connections
// continue; mu is held.
func (s *servers) part(serverID string, known *serverSession) {
	klog.Background().Info("Leaving a proxy server, since others serve this cluster", "serverID", serverID, "connected", len(s.sessions), "servers", s.share.total)
	known.parted = true
	s.share.left = remember(s.share.left, serverID)
	for _, stream := range known.control {
		go stream.leave()
	}
	time.AfterFunc(leaveAfter, func() { s.endParted(serverID, known) })
}

// endParted ends the control session with a server that was left. One that is just being
// renewed is waited for: without its end, a connection that is open would keep the agent known.
func (s *servers) endParted(serverID string, known *serverSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped, s.sessions[serverID] != known:
	case known.listens():
		known.end()
		s.remove(serverID, known)
	default:
		time.AfterFunc(leaveAfter, func() { s.endParted(serverID, known) })
	}
}

// remember adds a name, and forgets old ones.
func remember[K comparable](names map[K]time.Time, name K) map[K]time.Time {
	if names == nil {
		names = map[K]time.Time{}
	}
	for old, at := range names {
		if time.Since(at) > remembered {
			delete(names, old)
		}
	}
	names[name] = time.Now()
	return names
}

// trimLater leaves servers that the agent has more of than it wants, for example because
// there are more by now, at a random time: the fleet notices in the same moment. mu is held.
func (s *servers) trimLater() {
	if s.stopped || s.share.trimming || s.staying() <= s.wantedOf(s.share.total) {
		return
	}
	s.share.trimming = true
	time.AfterFunc(s.search.within(calmWindow), s.trim)
}

func (s *servers) trim() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.share.trimming = false
	if s.stopped {
		return
	}
	var staying []*serverSession
	for _, known := range s.sessions {
		if known.stays() {
			staying = append(staying, known)
		}
	}
	rand.Shuffle(len(staying), func(i, j int) { staying[i], staying[j] = staying[j], staying[i] })
	for _, known := range staying[min(s.wantedOf(s.share.total), len(staying)):] {
		known.leaving = true
	}
	s.leaveServers()
}

// stops notes that a proxy server drains, as another one says. The agent may not be connected
// to it, and connections come through it all the same; or it is, but cannot be told by it.
func (s *servers) stops(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.share.stopping = remember(s.share.stopping, number)
	for serverID, known := range s.sessions {
		if known.unheard && !known.draining && agentapi.NumberOf(serverID) == number {
			known.draining = true
			s.leaveServers()
		}
	}
}

// goesAway reports whether a connection should be replaced by one on another way: a proxy
// server that it comes through is about to stop, or the agent is leaving, or has left, the
// one that it is connected to, which is the first of them.
func (s *servers) goesAway(through []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, serverID := range through {
		known := s.sessions[serverID]
		_, stops := s.share.stopping[agentapi.NumberOf(serverID)]
		_, left := s.share.left[serverID]
		if known != nil && known.draining || stops || i == 0 && left {
			return true
		}
	}
	return false
}
