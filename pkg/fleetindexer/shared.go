package fleetindexer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

const (
	// openings is how many streams begin at a time: each asks the store for what it has, and has its agent dialed.
	// Agents that never begin to answer hold one of these for openTimeout, and then pause for longer.
	openings = 256
	// parsings is how many messages are unpacked at a time, of 8 MiB at most, and how many writes share a transaction of SQLite.
	parsings = 32
	// currentFor is how long rows count as current after the cluster was heard.
	currentFor = 30 * time.Second
)

// storeError is an error of the store, after which the cluster is claimed again.
type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

// shared is what the followers of all clusters share.
type shared struct {
	agents    agents
	store     *fleetindex.Store
	resources []feed.Resource
	metrics   *metrics
	// opening and parsing bound how many streams begin, and how many messages are unpacked, at a time.
	opening, parsing slots
	beats            beats
	// followed has the progress of the clusters of this replica: *progress by fleetindex.Cluster.
	followed sync.Map
}

func newShared(a agents, store *fleetindex.Store, resources []feed.Resource, m *metrics) *shared {
	return &shared{agents: a, store: store, resources: resources, metrics: m, opening: make(slots, openings), parsing: make(slots, parsings)}
}

// writeBeats writes when clusters were heard, in one transaction. After an error these times are lost, and
// the next ones follow in seconds.
func (s *shared) writeBeats(ctx context.Context) {
	at := s.beats.take()
	if len(at) == 0 {
		return
	}
	if err := s.store.Heard(ctx, at); err != nil {
		s.failed(ctx, err, "Failed to write when clusters were heard")
	}
}

// failed counts and logs an error of the store.
func (s *shared) failed(ctx context.Context, err error, message string, args ...any) {
	if ctx.Err() != nil {
		return
	}
	s.metrics.storeErrors.Inc()
	klog.FromContext(ctx).Error(err, message, args...)
}

// progress is what is known of a cluster that is followed.
type progress struct {
	// heard is when all rows were last known to be those of the cluster, in nanoseconds since 1970; 0 if they
	// were not since the process began.
	heard atomic.Int64
	// opened is when the agent last answered a request for rows, in nanoseconds since 1970; 0 if it has not.
	opened atomic.Int64
	// waiting is what ends the pause of the follower while the cluster is away, when it is closed.
	waiting atomic.Pointer[chan struct{}]
	// refused says that the cluster is not to be indexed, by its owner's will or its agent's configuration.
	refused atomic.Bool
	// rows is how many there are.
	rows atomic.Int64
	// absent has the resources that the cluster does not have.
	absent sync.Map
}

// lastHeard returns when all rows of a cluster were last known to be the cluster's, and whether that is now. stored is the time
// that the store has: the one of a cluster that another replica follows.
func (s *shared) lastHeard(c fleetindex.Cluster, stored, now time.Time) (heard time.Time, isCurrent bool) {
	heard = stored
	if p, ok := s.followed.Load(c); ok {
		// A time from before the process began says nothing of the changes since.
		at := p.(*progress).heard.Load()
		if at == 0 {
			return stored, false
		}
		heard = time.Unix(0, at)
	}
	return heard, now.Sub(heard) <= currentFor
}

// endPause has the follower of a cluster try again at once, if the cluster is this replica's and was away.
func (s *shared) endPause(c fleetindex.Cluster) {
	if p, ok := s.followed.Load(c); ok {
		if back := p.(*progress).waiting.Swap(nil); back != nil {
			close(*back)
		}
	}
}

// hasOpened reports whether a cluster of this replica has answered a request for rows after a time.
func (s *shared) hasOpened(c fleetindex.Cluster, since time.Time) bool {
	p, ok := s.followed.Load(c)
	return ok && p.(*progress).opened.Load() > since.UnixNano()
}

// isAbsent reports whether a cluster of this replica says that it does not have a resource.
func (s *shared) isAbsent(c fleetindex.Cluster, r feed.Resource, now time.Time) bool {
	p, ok := s.followed.Load(c)
	if _, isCurrent := s.lastHeard(c, time.Time{}, now); !ok || !isCurrent {
		return false
	}
	_, isAbsent := p.(*progress).absent.Load(r)
	return isAbsent
}

// count counts the rows.
func (p *progress) count(w *fleetindex.Writer) {
	total := int64(0)
	for _, f := range w.Feeds() {
		total += f.Total
	}
	p.rows.Store(total)
}

// slots bound how much of something happens at a time.
type slots chan struct{}

func (s slots) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s slots) release() { <-s }

// beats are the times at which clusters were heard and that the store does not have yet.
type beats struct {
	mu sync.Mutex
	at map[*fleetindex.Writer]time.Time
}

func (b *beats) add(w *fleetindex.Writer, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at == nil {
		b.at = map[*fleetindex.Writer]time.Time{}
	}
	b.at[w] = now
}

func (b *beats) take() map[*fleetindex.Writer]time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.at
	b.at = nil
	return at
}
