package fleetindexer

import (
	"context"
	"math"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

const (
	// forgetInterval is how often decisions of the store are deleted that are too old, or beyond maxKept.
	forgetInterval, maxKept = time.Minute, 1_000_000
	// lookedUpFor is how old the answer of the store about a cluster that is away is when it is used.
	lookedUpFor = 5 * time.Second
)

// notWritten is why a cluster has not decided if its decision cannot be written.
const notWritten = "the fleet index cannot write what it decided"

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
		about := sheetKey{as.key, q}
		key := keptKey{about.digest(), c}
		s, ok := r.sheets.Get(about)
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
