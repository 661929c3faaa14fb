package fleetindexer

import (
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"
	"unique"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	bounded "open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
)

const (
	// freshFor is how old a decision is at most when it is used, and failedFor how long a cluster that did not answer is
	// not asked again.
	freshFor, failedFor = 10 * time.Second, 10 * time.Second
	// decisionTimeout is how long an answer waits for a cluster that was asked. The decision counts when it comes.
	decisionTimeout = 3 * time.Second
	// reviewTimeout bounds a review, and the time that one waits for its turn.
	reviewTimeout = 8 * time.Second
	// reviewsAtOnce bounds the reviews that are under way.
	reviewsAtOnce = 512
	// maxKnown bounds the decisions that are remembered, at some 70 bytes each. sheetSize is how many a sheet counts
	// for besides those on it.
	maxKnown, sheetSize = 1_000_000, 8
	// verbList is the verb that is asked about.
	verbList = "list"
)

// rights knows what callers may list in clusters, which decide about it.
type rights struct {
	reviewers reviewers
	// uid returns the UID of the ManagedCluster that has a name now.
	uid func(cluster string) string
	// staleFor is how long the last decision of a cluster stands while it is away.
	staleFor time.Duration
	metrics  *metrics
	kept     keeper
	// asking bounds reviews, and lookingUp reads of decisions.
	asking, lookingUp slots
	sheets            *bounded.Sized[sheetKey, *sheet]

	mu       sync.Mutex // of what sheets have, and of the below
	flights  map[flightKey]*flight
	failures map[fleetindex.Cluster]failure
}

func newRights(r reviewers, uid func(string) string, staleFor time.Duration, s *shared) *rights {
	return &rights{reviewers: r, uid: uid, staleFor: staleFor, metrics: s.metrics, kept: keeper{shared: s, isReplica: s.store.IsShared()}, asking: make(slots, reviewsAtOnce), lookingUp: make(slots, 1),
		sheets: bounded.NewSized[sheetKey, *sheet](maxKnown), flights: map[flightKey]*flight{}, failures: map[fleetindex.Cluster]failure{}}
}

// caller is a user and the key of its decisions.
type caller struct {
	user *user.DefaultInfo
	key  [sha256.Size]byte
}

// newCaller returns an error for a user who cannot be asserted to a cluster.
func newCaller(c indexapi.Caller) (*caller, error) {
	u := &user.DefaultInfo{Name: c.Name, UID: c.UID, Groups: c.Groups, Extra: c.Extra}
	if err := agentclient.CheckUser(u); err != nil {
		return nil, err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return &caller{u, sha256.Sum256(text)}, nil
}

// sheet has the decisions of clusters on one question of one caller.
type sheet struct {
	decisions map[unique.Handle[fleetindex.Cluster]]decision
	// kept are those of the store, and lookedUp is when it was read; the zero time if it was not.
	kept     fleetindex.LastDecisions
	lookedUp time.Time
}

func (s *sheet) size() int64 { return int64(len(s.decisions) + len(s.kept) + sheetSize) }

type sheetKey struct {
	caller   [sha256.Size]byte
	question feed.Question
}

// digest names the question in the store.
func (k *sheetKey) digest() fleetindex.Digest {
	text, _ := json.Marshal(k.question) // it has nothing that JSON has not
	return fleetindex.NewDigest(append(k.caller[:], text...))
}

// decision is the last one of a cluster. at, failed and kept are when it was asked for, when the cluster last could
// not decide, and when the decision was asked for that was given to the store; in nanoseconds since 1970, 0 is never.
type decision struct {
	at, failed, kept int64
	// isRefused says that the cluster refuses to decide.
	isAllowed, isRefused bool
	// reason is why the cluster refuses, or could not decide.
	reason string
}

// failure is that a cluster could not be asked.
type failure struct {
	at     time.Time
	reason string
	isAway bool
}

// flight is a review that is under way, for all that wait for its decisions.
type flight struct {
	// late is closed when nobody waits any longer, and done when there are decisions, or none. timer closes late, if it runs.
	late, done chan struct{}
	timer      *time.Timer
	reason     string // after done, why it was not asked
}

type flightKey struct {
	caller    [sha256.Size]byte
	cluster   fleetindex.Cluster
	questions string
}

// wasAllowed reports whether the last decision of a cluster that is remembered is a yes, however old it is.
func (r *rights) wasAllowed(as *caller, c fleetindex.Cluster, q feed.Question) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.knownLocked(as, c, q).isAllowed
}

// failedLocked returns why a cluster could not be asked lately. One that was away is asked again as soon as its agent is there.
func (r *rights) failedLocked(c fleetindex.Cluster, now time.Time) (failure, bool) {
	f, ok := r.failures[c]
	return f, ok && now.Sub(f.at) < failedFor && !(f.isAway && r.kept.hasOpened(c, f.at))
}

// knownLocked returns the last decision of a cluster.
func (r *rights) knownLocked(as *caller, c fleetindex.Cluster, q feed.Question) decision {
	s, ok := r.sheets.Get(sheetKey{as.key, q})
	if !ok {
		return decision{}
	}
	return s.decisions[unique.Make(c)]
}

// sheetLocked returns a sheet, which may be a new one that is not remembered yet.
func (r *rights) sheetLocked(key sheetKey) *sheet {
	if s, ok := r.sheets.Get(key); ok {
		return s
	}
	return &sheet{decisions: map[unique.Handle[fleetindex.Cluster]]decision{}}
}

func (d decision) isFresh(now time.Time) bool {
	return d.at != 0 && now.Sub(time.Unix(0, d.at)) < freshFor
}

func (d decision) hasFailed(now time.Time) bool {
	return d.failed != 0 && now.Sub(time.Unix(0, d.failed)) < failedFor
}
