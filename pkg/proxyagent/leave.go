package proxyagent

// stays reports whether nobody has to take the server's place; mu is held.
func (k *serverSession) stays() bool { return !k.draining && !k.unheard }

// unused reports whether nothing is open on the server's carriers; mu is held.
func (k *serverSession) unused() bool { return k.pool.Stats().InUse == 0 }

// serving reports whether a server that does not drain, as far as it can say, is connected; mu
// is held.
func (s *servers) serving() bool {
	for _, known := range s.sessions {
		if known.stays() {
			return true
		}
	}
	return false
}

// enough reports whether the agent has all servers without those that it leaves; mu is held.
func (s *servers) enough() bool {
	staying := 0
	for _, known := range s.sessions {
		if known.stays() {
			staying++
		}
	}
	return staying >= max(s.total, 1)
}

// leaveServers tells the servers that drain to go without waiting for this agent, if it
// has another one. A server that cannot be told is left without a word: its unused carriers
// are closed, and open connections continue. Unless it drains it is kept as long as there are
// any, by which it knows the agent. mu is held.
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
		}
	}
}

// goesAway reports whether a connection should be replaced by one on another way: a proxy
// server that it comes through is about to stop. The server to which the agent is connected,
// which is the first of them, may be about to stop when it can tell the agent nothing.
func (s *servers) goesAway(through []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, serverID := range through {
		known := s.sessions[serverID]
		mute := i == 0 && serverID != "" && (known == nil || known.unheard) && s.serving()
		if mute || known != nil && known.draining {
			return true
		}
	}
	return false
}
