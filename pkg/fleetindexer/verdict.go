package fleetindexer

import (
	"cmp"
	"context"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

// wait returns what the caller may do, question by question.
func (p *pending) wait(ctx context.Context) []verdict {
	reason := "it was not asked"
	if p.flight != nil {
		select {
		case <-p.flight.done:
			reason = p.flight.reason
		case <-p.flight.late:
			reason = "it did not decide within " + decisionTimeout.String()
		case <-ctx.Done():
			reason = "the request has ended"
		}
	}
	standsFor := p.lookUp(ctx)
	now := time.Now()
	verdicts := make([]verdict, len(p.questions))
	p.rights.mu.Lock()
	defer p.rights.mu.Unlock()
	failed, hasFailed := p.rights.failedLocked(p.cluster, now)
	for i, q := range p.questions {
		d := p.rights.knownLocked(p.caller, p.cluster, q)
		last := decision{}
		if standsFor > 0 {
			last = p.rights.lastLocked(p.caller, p.cluster, q, now)
		}
		v := &verdicts[i]
		switch {
		case d.isFresh(now):
			*v = verdict{isAllowed: d.isAllowed, isDecided: !d.isRefused, reason: d.reason}
		case hasFailed && failed.isAway && last.at != 0 && now.Sub(time.Unix(0, last.at)) <= standsFor:
			*v = verdict{isAllowed: last.isAllowed, isDecided: !last.isRefused, reason: last.reason, isStale: true, isAway: true}
		case hasFailed:
			*v = verdict{isAway: failed.isAway, reason: failed.reason}
		case d.hasFailed(now):
			v.reason = d.reason
		default:
			v.reason = cmp.Or(reason, "it has not decided")
		}
	}
	p.count(verdicts)
	return verdicts
}

// lookUp reads what the store knows of a cluster that is away, and returns for how long the cluster's last decision stands; 0 if
// it is not away, or that is not known.
func (p *pending) lookUp(ctx context.Context) time.Duration {
	p.rights.mu.Lock()
	failed, ok := p.rights.failedLocked(p.cluster, time.Now())
	p.rights.mu.Unlock()
	if !ok || !failed.isAway || p.rights.staleFor == 0 || p.rights.lookUp(ctx, p.caller, p.questions, lookedUpFor) != nil {
		return 0
	}
	return p.rights.staleFor
}

// verdict is what is known of a right.
type verdict struct {
	isAllowed, isDecided bool
	// isAway says that the cluster cannot be asked, and isStale that it decided before that.
	isAway, isStale bool
	// reason is why it is not decided.
	reason string
}

// undecided says why the caller's right is not known, if it is not.
func (v verdict) undecided() string {
	switch {
	case v.isDecided:
		return ""
	case v.isAway:
		return feed.CutText("it is away, and had not decided what the caller may list: " + v.reason)
	}
	return feed.CutText("it has not decided what the caller may list: " + v.reason)
}

// count counts decisions that were not asked for.
func (p *pending) count(verdicts []verdict) {
	remembered, stale := -p.asked, 0
	for _, v := range verdicts {
		switch {
		case v.isStale:
			stale++
		case v.isDecided:
			remembered++
		}
	}
	p.rights.metrics.decisions.WithLabelValues(decisionRemembered).Add(float64(max(0, remembered)))
	p.rights.metrics.decisions.WithLabelValues(decisionStale).Add(float64(stale))
}
