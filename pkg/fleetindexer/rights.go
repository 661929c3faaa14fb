package fleetindexer

import (
	"context"
	"encoding/json"
	"time"
	"unique"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
)

// pending is what a caller waits for of one cluster.
type pending struct {
	rights    *rights
	caller    *caller
	cluster   fleetindex.Cluster
	questions []feed.Question
	flight    *flight
	// asked is how many of the questions are new.
	asked int
}

// ask asks a cluster those questions that it has not answered lately, and no more than most of them.
func (r *rights) ask(ctx context.Context, as *caller, c fleetindex.Cluster, questions []feed.Question, most int) *pending {
	p := &pending{rights: r, caller: as, cluster: c, questions: questions}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.failedLocked(c, now); ok {
		return p
	}
	var unknown []feed.Question
	for _, q := range questions {
		if d := r.knownLocked(as, c, q); len(unknown) < most && !d.isFresh(now) && !d.hasFailed(now) {
			unknown = append(unknown, q)
		}
	}
	if p.asked = len(unknown); p.asked == 0 {
		return p
	}
	text, _ := json.Marshal(unknown) // it has nothing that JSON has not
	key := flightKey{as.key, c, string(text)}
	if p.flight = r.flights[key]; p.flight == nil {
		p.flight = &flight{late: make(chan struct{}), done: make(chan struct{})}
		r.flights[key] = p.flight
		// The decisions are for all that ask, and outlive this request.
		go r.fly(context.WithoutCancel(ctx), key, p.flight, as, unknown)
	}
	return p
}

// fly asks a cluster, and remembers what it decides.
func (r *rights) fly(ctx context.Context, key flightKey, f *flight, as *caller, questions []feed.Question) {
	defer close(f.done)
	decisions, at, err := r.review(ctx, f, key.cluster.Name, as.user, questions)
	isAsked, isSame := !at.IsZero(), r.uid(key.cluster.Name) == key.cluster.UID
	if f.timer != nil {
		defer f.timer.Stop()
	}
	if refuses(err) {
		decisions = make([]feed.Decision, len(questions))
		for i := range decisions {
			decisions[i] = feed.Decision{Undecided: err.Error(), Refused: true}
		}
		err = nil
	}
	if err == nil && isAsked && isSame {
		r.kept.endPause(key.cluster)
		r.takeBack(ctx, as, key.cluster, questions, decisions, at)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.flights, key)
	switch {
	case !isAsked:
		f.reason = "more questions are asked than clusters answer; try again"
		return
	case !isSame:
		return // it was another cluster that decided
	}
	if err != nil {
		if len(r.failures) >= indexapi.MaxClusters {
			clear(r.failures)
		}
		r.failures[key.cluster] = failure{time.Now(), feed.CutText(err.Error()), isAway(err)}
		return
	}
	for i, d := range decisions {
		r.rememberLocked(as, key.cluster, questions[i], d, at)
	}
	r.metrics.decisions.WithLabelValues(decisionAsked).Add(float64(len(decisions)))
}

// review asks a cluster when it is its turn, and returns when that was; the zero time if its turn did not come.
func (r *rights) review(ctx context.Context, f *flight, cluster string, as user.Info, questions []feed.Question) ([]feed.Decision, time.Time, error) {
	turn, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	if err := r.asking.acquire(turn); err != nil {
		return nil, time.Time{}, err
	}
	defer r.asking.release()
	f.timer = time.AfterFunc(decisionTimeout, func() { close(f.late) })
	ctx, end := context.WithTimeout(ctx, reviewTimeout)
	defer end()
	at := time.Now()
	decisions, err := r.reviewers.review(ctx, cluster, as, &feed.Review{Questions: questions})
	return decisions, at, err
}

// rememberLocked remembers what a cluster was asked at a time. One that could not decide leaves its last decision as it
// is, and one that refuses to decide takes it back.
func (r *rights) rememberLocked(as *caller, c fleetindex.Cluster, q feed.Question, d feed.Decision, at time.Time) {
	delete(r.failures, c)
	key := sheetKey{as.key, q}
	s := r.sheetLocked(key)
	one := s.decisions[unique.Make(c)]
	switch {
	case one.at > at.UnixNano():
		return // it was asked again, and decided sooner
	case d.Undecided == "":
		kept := one.kept
		if one = (decision{at: at.UnixNano(), isAllowed: d.Allowed}); d.Allowed && r.staleFor > 0 {
			if one.kept = kept; kept == 0 || at.Sub(time.Unix(0, kept)) >= min(keepAgainAfter, r.staleFor/10) {
				one.kept = one.at
				r.kept.allow(keptKey{key.digest(), c}, at)
			}
		}
	case d.Refused:
		// It may be one that could not be written: the store may still have what was allowed.
		one = decision{at: at.UnixNano(), kept: one.kept, isRefused: true, reason: feed.CutText(d.Undecided)}
	default:
		one.failed, one.reason = at.UnixNano(), feed.CutText(d.Undecided)
	}
	s.decisions[unique.Make(c)] = one
	r.sheets.Put(key, s, s.size())
}
