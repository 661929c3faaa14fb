package proxyagent

import (
	"context"
	"errors"
	"net"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// A carrier that is dialed for one proxy server may lead to another one behind
// a load balancer. It is kept for that one; after this many the attempt counts
// as failed and the backoff has its turn. Of many servers, two in a thousand attempts
// fail then.
const (
	carrierTries     = 8
	carrierTriesEach = 6 // for each server that there is
)

// errElsewhere is a failure to reach a certain proxy server.
var errElsewhere = errors.New("the address of the proxy servers keeps leading to others than the one that needs a carrier")

// dial makes a carrier to one server, which is a control session too if the agent has none
// there any more. After many dials that led to others the server may be gone without a word:
// then the others are spared for a while, unless the server itself asks for carriers.
func (s *servers) dial(ctx context.Context, serverID string) (*carrier.Carrier, error) {
	s.mu.Lock()
	known := s.sessions[serverID]
	if known == nil {
		s.mu.Unlock()
		return nil, net.ErrClosed
	}
	wait := time.Now().Before(known.elsewhere)
	tries := max(carrierTries, carrierTriesEach*s.total)
	renews := !wait && !known.renewing && !known.listens()
	if renews {
		known.renewing = true
		defer func() {
			s.mu.Lock()
			known.renewing = false
			s.mu.Unlock()
		}()
	}
	s.mu.Unlock()
	if wait {
		return nil, errElsewhere
	}
	for range tries {
		var made *carrier.Carrier
		var err error
		if renews {
			made, err = s.renewControl(ctx, known, serverID)
		} else {
			made, err = s.dialAny(ctx, serverID)
		}
		if made != nil || err != nil {
			return made, err
		}
	}
	s.mu.Lock()
	known.elsewhere = time.Now().Add(s.search.within(elsewhereWindow))
	if renews {
		s.noteUnheard(serverID, known)
	}
	s.mu.Unlock()
	return nil, errElsewhere
}

// dialAny makes a carrier, which goes to the pool of the server to which it leads: nil is
// returned if that is another one.
func (s *servers) dialAny(ctx context.Context, serverID string) (*carrier.Carrier, error) {
	made, err := s.carriers.dial(ctx)
	if err != nil || made.PeerName() == serverID {
		return made, err
	}
	s.mu.Lock()
	other := s.sessions[made.PeerName()]
	s.mu.Unlock()
	if other == nil || other.pool == nil {
		_ = made.Close()
	} else {
		_ = other.pool.Add(made) // which closes what it does not want
	}
	return nil, nil
}

// noteUnheard notes that no dial leads to a server any more, which has no control session: it
// may be about to stop, and cannot say so. mu is held.
func (s *servers) noteUnheard(serverID string, known *serverSession) {
	if s.sessions[serverID] != known || known.listens() {
		return
	}
	fresh := !known.unheard
	known.unheard = true
	if fresh {
		klog.Background().Info("No dial leads to a proxy server any more; looking for another one", "serverID", serverID, "draining", known.draining)
		s.news(0)
	}
	s.leaveServers()
}

// rejoinUnheard is rejoin for a session that was dialed to find another server.
func (s *servers) rejoinUnheard(c *controlCarrier) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.sessions[c.serverID()]
	if known == nil || !known.unheard || known.renewing || s.stopped {
		return false
	}
	s.search.found()
	s.renewed(known, c)
	known.elsewhere = time.Time{}
	if c.session.Opens() {
		go func() { _ = known.pool.Add(c.session.Carrier()) }()
	}
	return true
}
