package proxyagent

import (
	"context"
	"errors"
	"net"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
)

// A carrier that is dialed for one proxy server may lead to another one behind
// a load balancer. It is kept for that one; after this many the attempt counts
// as failed and the backoff has its turn. Of many servers, two in a thousand attempts
// fail then.
const (
	carrierTries     = 8
	carrierTriesEach = 6 // for each server that there is
)

// errOtherServers is a failure to reach a certain proxy server.
var errOtherServers = errors.New("reaching the proxy server that needs a carrier: dials to the shared address lead to other servers")

// connect dials a control session with one more server. Behind a load balancer it may lead to
// one that the agent has.
func (s *servers) connect() {
	s.mu.Lock()
	s.search.dialed(s.servingLocked() > 0)
	s.mu.Unlock()
	session, err := s.dialer.dialSession(s.draining)
	if err != nil {
		if s.draining.Err() == nil {
			klog.Background().Error(err, "Connecting to a proxy server; will try again")
		}
		return
	}
	server := s.addSession(session)
	if server == nil {
		_ = session.Close()
		return
	}
	s.startSession(server, session)
}

// addSession notes a session with a server that the agent does not have, or cannot hear. It
// returns nil for others.
func (s *servers) addSession(session *carrier.Session) *server {
	var first *carrier.Carrier
	if session.Opens() {
		first = session.Carrier()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := session.Peer().Session
	server := s.known[id]
	switch {
	case s.closed:
		return nil
	case server == nil:
		s.noteTotalLocked(totalOf(session))
		server = s.newServer(id)
		s.startPoolLocked(server, first)
		s.addServerLocked(server, session)
		return server
	case !server.state.isHalfOpen() || !server.renewal.TryLock():
		return nil
	}
	defer server.renewal.Unlock()
	s.search.found()
	s.renewSessionLocked(server, session)
	server.retryAt = time.Time{}
	if first != nil {
		go func() { _ = server.pool.Add(first) }()
	}
	return server
}

func (s *servers) newServer(id string) *server {
	made := &server{id: id}
	made.dial = func(ctx context.Context) (*carrier.Carrier, error) { return s.dialServer(ctx, made) }
	return made
}

// totalOf returns how many proxy servers there are, as the server said first.
func totalOf(session *carrier.Session) int { return int(min(session.Peer().Servers, 1<<31-1)) }

// startSession serves a control session that was added.
func (s *servers) startSession(server *server, session *carrier.Session) {
	stop := context.AfterFunc(s.draining, func() { sendLeaving(session) })
	handle := func(m carrier.Control) {
		n := int(min(m.Number, 1<<31-1))
		switch m.Kind {
		case agentapi.MoreCarriers:
			s.requestCarriers(server, n)
		case agentapi.Draining:
			s.noteDraining(server, n)
		case agentapi.ServerCount:
			s.noteTotal(n)
		}
	}
	session.Start(handle, func(err error) {
		stop()
		s.removeSession(server, session, session.Carries())
		klog.Background().V(1).Info("A control session has ended", "serverID", server.id, "err", err)
	})
}

// dialServer makes a carrier to one server, which is a control session too if the agent has none
// there any more. After many dials that led to others the server may be gone without a word:
// then the others are spared for a while, unless the server itself asks for carriers.
func (s *servers) dialServer(ctx context.Context, server *server) (*carrier.Carrier, error) {
	s.mu.Lock()
	gone, wait := server.state == stateGone, time.Now().Before(server.retryAt)
	tries := max(carrierTries, carrierTriesEach*s.search.total)
	renews := !gone && !wait && !server.isListeningLocked() && server.renewal.TryLock()
	s.mu.Unlock()
	attempt := s.dialAny
	switch {
	case gone:
		return nil, net.ErrClosed
	case wait:
		return nil, errOtherServers
	case renews:
		defer server.renewal.Unlock()
		attempt = s.renewSession
	}
	for range tries {
		if made, err := attempt(ctx, server); made != nil || err != nil {
			return made, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	server.retryAt = time.Now().Add(s.search.within(retryWindow))
	if renews && !server.isListeningLocked() {
		s.noteMissedLocked(server)
	}
	return nil, errOtherServers
}

// noteMissedLocked notes that no dial leads to a server any more, which has no control session:
// it may be about to stop, and cannot say so.
func (s *servers) noteMissedLocked(server *server) {
	if server.state != stateGone && !server.state.isHalfOpen() {
		klog.Background().Info("No dial leads to a proxy server any more; looking for another one", "serverID", server.id, "state", server.state.String())
	}
	s.applyLocked(server, eventMissed)
	s.settleLocked()
}

// dialAny makes a carrier, which goes to the pool of the server to which it leads: nil is
// returned if that is another one.
func (s *servers) dialAny(ctx context.Context, server *server) (*carrier.Carrier, error) {
	made, err := s.dialer.dialCarrier(ctx)
	if err != nil || made.PeerName() == server.id {
		return made, err
	}
	s.mu.Lock()
	other := s.known[made.PeerName()]
	s.mu.Unlock()
	if other == nil {
		_ = made.Close()
	} else {
		_ = other.pool.Add(made) // which closes what it does not want
	}
	return nil, nil
}

// renewSession makes a control session with one server in the place of one that has become a
// carrier. Another server, to which a load balancer may lead, refuses it: then it returns nil.
func (s *servers) renewSession(ctx context.Context, server *server) (*carrier.Carrier, error) {
	session, err := s.dialer.dialSession(ctx, agentapi.ServerFeature(server.id))
	switch {
	case carrier.CodeOf(err) == carrier.NoAgent, errors.Is(err, carrier.ErrNoCarriers):
		return nil, nil
	case err != nil:
		return nil, err
	}
	s.mu.Lock()
	if server.state == stateGone || s.closed || session.Peer().Session != server.id {
		s.mu.Unlock()
		_ = session.Close()
		return nil, net.ErrClosed
	}
	s.renewSessionLocked(server, session)
	// Nothing changed for other servers, and a busy agent makes many sessions a minute.
	if n := totalOf(session); n != s.search.total {
		s.noteTotalLocked(n)
	}
	s.mu.Unlock()
	s.startSession(server, session)
	return session.Carrier(), nil
}

const (
	// certificateRetry is the most that an agent waits before it shows its certificate again to a
	// server to which no dial has led; it doubles up to certificateRetryMost.
	certificateRetry     = 10 * time.Second
	certificateRetryMost = time.Hour
)

// presentCertificate dials a carrier to each server, which shows it the agent's new certificate.
// The server counts it for the older connections too and replaces their carriers.
func (s *servers) presentCertificate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range s.known {
		go s.presentCertificateTo(server)
	}
}

// presentCertificateTo dials until a carrier was made: an idle agent dials none for weeks, and
// what it has would end with the old certificate.
func (s *servers) presentCertificateTo(server *server) {
	pause := dial.Jitter(certificateRetry, certificateRetryMost)
	for failures := 1; ; failures++ {
		if made, err := server.dial(s.draining); err == nil {
			_ = server.pool.Add(made) // which closes what it does not want
			return
		}
		select {
		case <-s.draining.Done():
			return
		case <-time.After(pause(failures)):
		}
		s.mu.Lock()
		gone := server.state == stateGone
		s.mu.Unlock()
		if gone {
			return
		}
	}
}
