package list

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
)

const (
	// firstWave is how many members a page with a limit asks at first, if it has not been
	// asked for before. How many it needs is known when they have answered.
	firstWave = 8
	// hold is how long a page with a limit waits for members that have not begun to answer
	// when others have, and for the first of many longer (asOne). They go to the last page, which waits for the view's timeout.
	hold = 300 * time.Millisecond
	// maxDeferred is how many bytes the names of members that were passed over may have before
	// pages wait for members again. The names come back in the URLs of the next pages, which
	// servers on the way bound.
	maxDeferred = 8 << 10
)

// New makes a Lister. The clock, the versions that members had, and the memory are shared with
// other requests.
func New(clock *version.Clock, positions *position.Store, held *fleet.Memory) *Lister {
	return &Lister{clock: clock, positions: positions, held: held, usual: fleet.NewSized[string, share](maxUsual), kinds: fleet.NewSized[string, metav1.TypeMeta](maxKinds)}
}

// Serve answers a list.
func (s *Lister) Serve(w http.ResponseWriter, r *http.Request, q *request.Request) error {
	accepted, err := request.Forms(r)
	if err != nil {
		return err
	}
	for i, form := range accepted {
		l, err := s.newListing(r.Context(), w, q, form)
		if err != nil {
			return err
		}
		err = l.serve(r.Context())
		if apierrors.IsNotAcceptable(err) && i+1 < len(accepted) {
			continue
		}
		return err
	}
	return nil
}

// serve asks members until the page is full or all have answered.
func (l *listing) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		if err := l.refused(); err != nil {
			return l.cutOff(err)
		}
		wave := l.wave()
		if len(wave) == 0 {
			l.remember()
			return l.cutOff(l.page.end(l.token()))
		}
		if err := l.read(ctx, wave); err != nil {
			return l.cutOff(err)
		}
		if err := ctx.Err(); err != nil {
			return l.cutOff(err)
		}
	}
}

// cutOff makes an error that comes in the middle of an answer one that clients notice.
func (l *listing) cutOff(err error) error {
	if err != nil && l.page.started {
		panic(http.ErrAbortHandler)
	}
	return err
}

// wave takes the members that are asked next; none if the page is complete.
func (l *listing) wave() []fleet.Member {
	if l.page.full {
		return nil
	}
	if len(l.next) == 0 && l.page.items == 0 {
		l.next, l.deferred, l.last = l.deferred, nil, true
	}
	n := len(l.next)
	if l.limit > 0 {
		n = min(n, l.enough(), fleet.MaxAsked)
	}
	wave := l.next[:n]
	l.next = l.next[n:]
	return wave
}

// enough is how many members are likely to fill the page.
func (l *listing) enough() int {
	switch {
	case l.memberToken != "":
		return 1 // it had more than a page
	case l.items == 0 && l.usual.items > 0:
		return max(l.usual.filling(l.limit), l.clusters)
	case l.items == 0:
		return max(firstWave, l.clusters)
	}
	return share{l.clusters, l.items}.filling(l.limit - l.page.items)
}

// read asks the members of a wave and puts their items on the page, in order.
func (l *listing) read(ctx context.Context, wave []fleet.Member) error {
	l.asked = wave
	wait := waitLimits{timeout: l.View.Timeout}
	if l.limit > 0 && !l.last && l.memberToken == "" && l.deferredBytes() < maxDeferred {
		wait.hold, wait.begun = hold, l.page.items > 0
	}
	if l.limit == 0 && l.exact == nil && !l.View.FailWhenUnreachable && !l.informer {
		wait.hold, wait.late = l.View.Timeout/2, true
	}
	answers := l.begin(ctx, wave, wait)
	defer func() { closeAll(answers) }()
	l.agree(answers)
	if l.limit == 0 {
		// The header, which has the Warnings, is sent while the items are read.
		slices.SortStableFunc(answers, func(a, b *memberList) int { return cmp.Compare(a.order(), b.order()) })
	}
	for _, p := range answers {
		if p.later != nil {
			l.late = append(l.late, p.Member)
		}
	}
	for i, p := range answers {
		if p.later != nil {
			var err error
			if p, err = l.await(ctx, p); err != nil {
				return err
			}
			answers[i] = p
		}
		complete, err := l.take(p, l.limit > 0 && wait.hold > 0)
		if err != nil {
			return err
		}
		if complete {
			i++
		}
		if l.page.full {
			l.next = slices.Concat(wave[i:], l.next)
			return nil
		}
	}
	return nil
}

// deferredBytes is about what the names of deferred members take in a continue token.
func (l *listing) deferredBytes() (n int) {
	for _, m := range l.deferred {
		n += len(m.Name()) + 1
	}
	return n
}

// await returns the list of a member that is late. The answers of others go to the
// client before.
func (l *listing) await(ctx context.Context, p *memberList) (*memberList, error) {
	if l.answered > 0 {
		if err := l.page.flush(true); err != nil {
			return p, err
		}
		l.page.start() // there may be no items
		_ = http.NewResponseController(l.page.w).Flush()
	}
	select {
	case <-ctx.Done():
		return p, ctx.Err()
	case late := <-p.later:
		if !l.page.started {
			l.late = slices.DeleteFunc(l.late, func(m fleet.Member) bool { return m == p.Member })
		}
		return late, nil
	}
}

// take puts one member's items on the page. It reports whether the page needs no more of
// the member.
func (l *listing) take(p *memberList, deferring bool) (complete bool, err error) {
	if p.Failure != nil {
		return true, l.fail(p.Member, p.Failure, deferring)
	}
	token, err := l.page.add(p)
	var broken *brokenError
	switch {
	case errors.As(err, &broken):
		return true, l.fail(p.Member, fault.Of(p.Member.Name(), broken), deferring)
	case errors.Is(err, errPageFull):
		return false, nil
	case err != nil:
		return false, err
	}
	l.answered++
	l.memberToken = token
	if token != "" {
		l.page.full = true
		return false, nil
	}
	l.clusters++
	return true, nil
}

// fail notes that a member has no part in the page.
func (l *listing) fail(m fleet.Member, f *fault.Fault, deferring bool) error {
	begun := m == l.begun
	if begun {
		l.memberToken = ""
	}
	switch {
	case f.Code == http.StatusNotFound:
		l.absent = append(l.absent, f)
	case f.Code == http.StatusGone && (begun || l.exact != nil):
		gone := fault.Refuse(http.StatusGone, fmt.Sprintf("cluster %q: %s", m.Name(), f.Reason))
		if begun && f.Answer.Continue != "" {
			// It is the first of its wave, whose others have no part in an answer either.
			l.next, l.memberToken = slices.Concat(l.asked, l.next), f.Answer.Continue
			gone.ErrStatus.Continue = l.token()
		}
		return gone
	case begun:
		// The pages before have a part of its objects, and their version is one at which the
		// client has them all: it would not get the others by a watch. It may ask for the page again.
		return f
	case l.page.started && slices.Contains(l.late, m):
		l.failures = append(l.failures, f) // its Warning is out
	case l.page.started && l.limit == 0:
		return f // its Warning would come too late
	case l.page.started || deferring && (f.Code == 0 && !f.Slow || l.awaits(f)):
		l.deferred = append(l.deferred, m)
	case l.awaits(f):
		return f // it broke off: the informer asks again
	default:
		l.failures = append(l.failures, f)
	}
	return nil
}

// refused returns the error of a list that nobody has a part in, or of a view that is
// all or nothing.
func (l *listing) refused() error {
	if l.View.FailWhenUnreachable && len(l.failures) > 0 {
		return fault.Unreachable(l.failures)
	}
	if l.answered > 0 || !l.first || len(l.next)+len(l.deferred) > 0 {
		return nil
	}
	return fault.AllFailed(l.failures, l.absent)
}

// token is the one that goes on with the next page; empty after the last one.
func (l *listing) token() string {
	token := version.Continue{
		Time: l.at.Time, Replica: l.at.Replica, Page: l.pageNumber + 1, Informer: l.informer, Member: l.memberToken, Clusters: l.clusters, Items: l.items,
		APIVersion: l.page.meta.APIVersion, Kind: l.page.meta.Kind,
	}
	later := l.deferred
	if l.last {
		later = slices.Concat(l.next, l.deferred)
	}
	for _, m := range later {
		token.Deferred = append(token.Deferred, m.Name())
	}
	switch {
	case len(l.next) > 0:
		token.Next = l.next[0].Name()
	case len(later) == 0:
		return ""
	}
	return token.String()
}

// remember notes what a first page had: the next one asks as many members at first. Answers
// of others are not read, and cost them as much as if they were.
func (l *listing) remember() {
	if l.first && l.limit > 0 && l.items > 0 {
		about := l.about()
		l.lister.usual.Put(about, share{max(1, l.clusters), l.items}, int64(len(about)))
	}
}
