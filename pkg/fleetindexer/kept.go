package fleetindexer

import (
	"context"
	"encoding/json"
	"math"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

const (
	// keepInterval is how often the store learns what clusters allowed, and keepAgainAfter how old its time of a decision gets
	// before it learns of a new one.
	keepInterval, keepAgainAfter = 10 * time.Second, 5 * time.Minute
	// forgetInterval is how often decisions of the store are deleted that are too old, or beyond maxKept.
	forgetInterval, maxKept = time.Minute, 1_000_000
	// maxUnwritten bounds the decisions that wait to be written.
	maxUnwritten = 100_000
	// keepTimeout bounds a read or write of decisions.
	keepTimeout = 5 * time.Second
	// lookedUpFor is how old the answer of the store about a cluster that is away is when it is used.
	lookedUpFor = 5 * time.Second
)

// notWritten is why a cluster has not decided if its decision cannot be written.
const notWritten = "the fleet index cannot write what it decided"

// keptKey names a decision.
type keptKey struct {
	sheetKey
	cluster fleetindex.Cluster
}

func (k *sheetKey) digest() fleetindex.Digest {
	text, _ := json.Marshal(k.question) // it has nothing that JSON has not
	return fleetindex.NewDigest(append(k.caller[:], text...))
}

// keeper writes to the store what clusters decided.
type keeper struct {
	*shared
	// isReplica says that other processes write decisions too.
	isReplica bool

	mu sync.Mutex
	// allowed are not written yet, and writing are being written; with the times at which clusters were asked.
	allowed, writing map[keptKey]time.Time
	// next is what is taken back after what is being taken back.
	next     *takingBack
	takeBack sync.Mutex
}

// takingBack is one transaction, for all that wait for it.
type takingBack struct {
	denied []fleetindex.Decision
	done   chan struct{}
	err    error // after done
}

// allow has a decision written later. Beyond the bound it is not, and shows less after a restart.
func (k *keeper) allow(key keptKey, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.allowed[key]; !ok && len(k.allowed) >= maxUnwritten {
		return
	}
	if k.allowed == nil {
		k.allowed = map[keptKey]time.Time{}
	}
	k.allowed[key] = at
}

// isUnwritten reports whether a decision is still to come to the store.
func (k *keeper) isUnwritten(key keptKey) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, waits := k.allowed[key]
	_, isWritten := k.writing[key]
	return waits || isWritten
}

// deny returns when the store has taken decisions back.
func (k *keeper) deny(ctx context.Context, keys []keptKey, at time.Time) error {
	k.mu.Lock()
	b := k.next
	if b == nil {
		b = &takingBack{done: make(chan struct{})}
		k.next = b
		go k.commit(context.WithoutCancel(ctx), b)
	}
	for _, key := range keys {
		delete(k.allowed, key) // it is older
		b.denied = append(b.denied, fleetindex.Decision{Question: key.digest(), Cluster: key.cluster, At: at})
	}
	k.mu.Unlock()
	<-b.done
	return b.err
}

func (k *keeper) commit(ctx context.Context, b *takingBack) {
	defer close(b.done)
	k.takeBack.Lock()
	defer k.takeBack.Unlock()
	k.mu.Lock()
	k.next = nil
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if b.err = k.store.TakeBack(ctx, b.denied); b.err != nil {
		k.failed(context.WithoutCancel(ctx), b.err, "Failed to write that clusters allow less; they count as undecided")
	}
}

// write writes what waits. What cannot be written is dropped: it was allowed, and will be again.
func (k *keeper) write(ctx context.Context) {
	k.mu.Lock()
	k.allowed, k.writing = nil, k.allowed
	k.mu.Unlock()
	var allowed []fleetindex.Decision
	now := time.Now()
	for key, at := range k.writing { // only this method changes it
		if now.Sub(at) < fleetindex.MaxDecisionAge {
			allowed = append(allowed, fleetindex.Decision{Question: key.digest(), Cluster: key.cluster, At: at})
		}
	}
	if len(allowed) > 0 {
		ctx, cancel := context.WithTimeout(ctx, keepTimeout)
		defer cancel()
		if err := k.store.Keep(ctx, allowed); err != nil {
			k.failed(ctx, err, "Failed to write what clusters allow; it is not known after a restart")
		}
	}
	k.mu.Lock()
	k.writing = nil
	k.mu.Unlock()
}

// run writes decisions until ctx is done.
func (r *rights) run(ctx context.Context) error {
	keep, forget := time.NewTicker(keepInterval), time.NewTicker(forgetInterval)
	defer keep.Stop()
	defer forget.Stop()
	r.forget(ctx) // also if decisions are not to stand any more
	for {
		select {
		case <-ctx.Done():
			r.kept.write(context.WithoutCancel(ctx))
			return nil
		case <-keep.C:
			r.kept.write(ctx)
		case <-forget.C:
			r.forget(ctx)
		}
	}
}

func (r *rights) forget(ctx context.Context) {
	if err := r.kept.store.ForgetDecisions(ctx, time.Now().Add(-r.staleFor), maxKept); err != nil {
		r.kept.failed(ctx, err, "Failed to delete old decisions; will try again")
	}
}

// takeBack takes back in the store what a cluster does not allow any more, before anybody is told. Where that fails, the cluster
// has not decided.
func (r *rights) takeBack(ctx context.Context, as *caller, c fleetindex.Cluster, questions []feed.Question, decisions []feed.Decision, at time.Time) {
	var denied []int
	var about []feed.Question
	for i, d := range decisions {
		if !d.Allowed && (d.Undecided == "" || d.Refused) {
			denied, about = append(denied, i), append(about, questions[i])
		}
	}
	if len(denied) == 0 || r.staleFor == 0 {
		return
	}
	keys, err := r.mayBeKept(ctx, as, c, about)
	if err == nil && len(keys) > 0 {
		err = r.kept.deny(ctx, keys, at)
	}
	if err != nil {
		for _, i := range denied {
			decisions[i] = feed.Decision{Undecided: notWritten, Refused: true}
		}
	}
}

// mayBeKept returns the questions on which a replica may have written a decision, or may still write one.
func (r *rights) mayBeKept(ctx context.Context, as *caller, c fleetindex.Cluster, questions []feed.Question) (keys []keptKey, err error) {
	if !r.kept.isReplica {
		err = r.lookUp(ctx, as, questions, math.MaxInt64)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range questions {
		key := keptKey{sheetKey{as.key, q}, c}
		s, ok := r.sheets.Get(key.sheetKey)
		// The sheet may have been forgotten since.
		if r.kept.isReplica || !ok || s.kept.Of(c).IsAllowed || r.knownLocked(as, c, q).kept != 0 || r.kept.isUnwritten(key) {
			keys = append(keys, key)
		}
	}
	return keys, err
}

// lookUp reads what the store has on a caller's questions, if it was not read lately.
func (r *rights) lookUp(ctx context.Context, as *caller, questions []feed.Question, lately time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if err := r.lookingUp.acquire(ctx); err != nil { // others may be about to read the same
		return err
	}
	defer r.lookingUp.release()
	now := time.Now()
	var keys []sheetKey
	var digests []fleetindex.Digest
	r.mu.Lock()
	for _, q := range questions {
		key := sheetKey{as.key, q}
		if s, ok := r.sheets.Get(key); !ok || s.lookedUp.IsZero() || now.Sub(s.lookedUp) >= lately {
			keys, digests = append(keys, key), append(digests, key.digest())
		}
	}
	r.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	kept, err := r.kept.store.Decisions(ctx, digests)
	if err != nil {
		r.kept.failed(ctx, err, "Failed to read what clusters decided")
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, key := range keys {
		s := r.sheetLocked(key)
		s.kept, s.lookedUp = kept[digests[i]], now
		r.sheets.Put(key, s, s.size())
	}
	return nil
}

// lastLocked returns the last decision that a cluster gave to any replica, the store having been read.
func (r *rights) lastLocked(as *caller, c fleetindex.Cluster, q feed.Question, now time.Time) decision {
	own := r.knownLocked(as, c, q)
	s, ok := r.sheets.Get(sheetKey{as.key, q})
	if !ok {
		return decision{}
	}
	kept := s.kept.Of(c)
	if kept.At.After(now.Add(fleetindex.ClockSkew)) {
		kept = fleetindex.LastDecision{} // a clock was wrong
	}
	at := time.Unix(0, own.at)
	switch {
	case own.at != 0 && !own.isAllowed && (!kept.IsAllowed || !at.Add(fleetindex.ClockSkew).Before(kept.At)):
		return own
	case own.at != 0 && own.isAllowed && now.Sub(at) < fleetindex.MaxDecisionAge && (kept.IsAllowed || kept.At.IsZero() || at.After(kept.At.Add(fleetindex.ClockSkew))):
		return own // it may not be in the store yet
	case kept.At.IsZero():
		return decision{} // another replica has taken it back, or it is too old
	}
	return decision{at: kept.At.UnixNano(), isAllowed: kept.IsAllowed}
}
