package agentclient

import (
	"errors"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// AwayAfter is how long an agent may be gone before its cluster counts as away. The restart of
// an agent, or of the proxy servers with the return of their agents, takes less.
const AwayAfter = 15 * time.Second

// AwayError is the error of a dial to a cluster that is not expected to be there in a moment.
type AwayError struct {
	Err error
	// Since is when the last connection to the cluster ended; zero if that is not known.
	Since time.Time
}

func (e *AwayError) Error() string { return e.Err.Error() }
func (e *AwayError) Unwrap() error { return e.Err }

// IsAway reports whether err means that the cluster has been away for longer than a restart
// takes, so that to ask again in a moment changes nothing. The cluster's addon was lost at
// since, if that is not zero.
func IsAway(err error, since time.Time) bool {
	if errors.As(err, new(*AwayError)) {
		return true
	}
	return tunnel.CodeOf(err) == tunnel.NoAgent && !since.IsZero() && time.Since(since) >= AwayAfter
}

// presence is what dials tell of a cluster's agents. Its zero value is a cluster of which
// nothing is known.
type presence struct {
	// there is when an agent was last known to be there.
	there time.Time
	// missing says that a dial found no agent, and none has found one since. The agent
	// is expected until then, from the first of these dials on: a cluster that was away
	// before the proxy servers were is away after it, too.
	missing bool
	until   time.Time
}

// dialed notes how a dial ended, and returns its error: an AwayError for an agent that is not
// expected back.
func (p *pool) dialed(err error) error {
	p.client.observeDial(err)
	now := time.Now()
	switch code := tunnel.CodeOf(err); {
	case err == nil, code == tunnel.Denied, code == tunnel.Unreachable: // the agent has answered
		p.mu.Lock()
		p.presence = presence{there: now}
		p.mu.Unlock()
	case code == tunnel.NoProxyServer:
		p.client.withoutServer.Store(now.UnixNano())
	case code == tunnel.NoAgent:
		return p.missed(now, err)
	}
	return err
}

// missed notes that a dial found no agent.
func (p *pool) missed(now time.Time, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.conns) > 0 {
		p.presence.there = now // it may drain
	}
	if !p.presence.missing {
		p.presence.missing = true
		expected := p.presence.there
		if lost := time.Unix(0, p.client.withoutServer.Load()); lost.After(expected) {
			expected = lost // its agents come back when they can
		}
		p.presence.until = expected.Add(AwayAfter)
	}
	if now.Before(p.presence.until) {
		return err
	}
	return &AwayError{Err: err, Since: p.presence.there}
}
