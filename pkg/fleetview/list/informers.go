package list

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// awaitEvery is the pause before members that an informer's list waits for are asked again.
const awaitEvery = time.Second

// isInformers reports whether a list is one that an informer makes, which takes what is not in it
// for gone. Reflectors of client-go list from 0, and later from the newest version that they have
// seen. kubectl, and others that people wait for, name no version.
func (l *listing) isInformers() bool {
	return l.Query.Get("resourceVersion") != "" && l.Query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchExact) &&
		l.form.As != "Table" && !l.View.FailWhenUnreachable
}

// awaits reports whether the list waits for a member that has failed.
func (l *listing) awaits(f *fault.Fault) bool {
	if !l.informer || f == nil {
		return false
	}
	// The clock of versions may be ahead.
	since := time.UnixMicro(min(l.at.Time, l.since.UnixMicro()))
	return time.Since(since) < l.View.InformerTimeout && !f.Believed(since)
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
			again := l.askAll(ctx, away, waitLimits{timeout: l.View.Timeout})
			away = l.away(again)
			closeAll(again)
		}
	}
}

// askAll asks members for their lists.
func (l *listing) askAll(ctx context.Context, members []fleet.Member, wait waitLimits) []*memberList {
	requests := make([]fleet.Question, len(members))
	for i, m := range members {
		requests[i] = l.requestTo(m)
	}
	return gather(ctx, members, wait, func(ctx context.Context, i int) *memberList {
		return l.open(requests[i].Ask(ctx, members[i]), len(members))
	})
}

// away returns the members that the list waits for.
func (l *listing) away(answers []*memberList) (members []fleet.Member) {
	for _, p := range answers {
		if l.awaits(p.Failure) {
			members = append(members, p.Member)
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

// requestTo is what one member is asked, which may be the first of next that was begun.
func (l *listing) requestTo(m fleet.Member) fleet.Question {
	query := maps.Clone(l.Query)
	query.Del("continue")
	query.Del("limit")
	if l.limit > 0 {
		query.Set("limit", strconv.Itoa(l.limit-l.page.items))
	}
	if m == l.begun { // with a limit it is asked alone
		query.Set("continue", l.memberToken)
	}
	if l.exact != nil {
		query.Set("resourceVersion", l.exact[m.UID()])
	}
	return fleet.Question{Method: http.MethodGet, Path: l.Path.String(), Query: query, Accept: l.form.Accept, Timeout: l.View.Timeout}
}
