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
