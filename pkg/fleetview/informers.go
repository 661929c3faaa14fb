package fleetview

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch"
)

// AnnotationMissing is on bookmarks, and in the metadata of lists in JSON, that lack objects because
// clusters have not answered or refuse: the names of these, sorted, with commas between them.
const AnnotationMissing = watch.AnnotationMissing

// awaitEvery is the pause before members that an informer's list waits for are asked again.
const awaitEvery = time.Second

// isInformers reports whether a list is one that an informer makes, which takes what is not in it
// for gone. Reflectors of client-go list from 0, and later from the newest version that they have
// seen. kubectl, and others that people wait for, name no version.
func (l *listing) isInformers() bool {
	return l.query.Get("resourceVersion") != "" && l.query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchExact) &&
		l.form.as != "Table" && !l.view.FailWhenUnreachable
}

// awaits reports whether the list waits for a member that has failed.
func (l *listing) awaits(f *fault.Fault) bool {
	if !l.informer || f == nil {
		return false
	}
	// The clock of versions may be ahead.
	since := time.UnixMicro(min(l.at.Time, l.since.UnixMicro()))
	return time.Since(since) < l.view.InformerTimeout && !f.Believed(since)
}

// begin asks the members of a wave. The list of an informer waits for those that do not answer,
// unless they may be asked for a later page.
func (l *listing) begin(ctx context.Context, wave []fleet.Member, wait waitLimits) []*memberList {
	for {
		answers := l.askAll(ctx, wave, wait)
		away := l.away(answers)
		if wait.hold > 0 || len(away) == 0 || ctx.Err() != nil {
			return answers
		}
		// Answers that others have begun would break off meanwhile.
		closeAll(answers)
		for len(away) > 0 && waits(ctx, awaitEvery) {
			again := l.askAll(ctx, away, waitLimits{timeout: l.view.Timeout})
			away = l.away(again)
			closeAll(again)
		}
	}
}

// askAll asks members for their lists.
func (l *listing) askAll(ctx context.Context, members []fleet.Member, wait waitLimits) []*memberList {
	requests := make([]memberRequest, len(members))
	for i, m := range members {
		requests[i] = l.requestTo(m)
	}
	return gather(ctx, members, wait, func(ctx context.Context, i int) *memberList {
		return l.open(requests[i].ask(ctx, members[i]), len(members))
	})
}

// away returns the members that the list waits for.
func (l *listing) away(answers []*memberList) (members []fleet.Member) {
	for _, p := range answers {
		if l.awaits(p.failure) {
			members = append(members, p.member)
		}
	}
	return members
}

func closeAll(lists []*memberList) {
	for _, p := range lists {
		p.close()
	}
}

// waits reports whether the request goes on after a time.
func waits(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil
}
