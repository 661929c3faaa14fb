package fleetview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
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

// listing is one list, or one page of it.
type listing struct {
	*request
	h    *Handler
	form form
	// limit is how many items the page may have; 0 is without limit.
	limit int
	// at is the list's version, of when the first page was asked for.
	at version.Version
	// pageNumber counts the pages before; first says that there is none.
	pageNumber int
	first      bool
	// informer says that the list is an informer's, and since is when this page was asked for.
	informer bool
	since    time.Time
	// next has the members to ask, in order; memberToken goes on with the first of them.
	next        []fleet.Member
	memberToken string
	// begun is the member of whose objects the page before had a part; nil if there is none.
	begun fleet.Member
	// asked is the wave that is read now.
	asked []fleet.Member
	// deferred have been passed over. They are next when there are no others, which last
	// says.
	deferred []fleet.Member
	last     bool
	// clusters and items are how many were read, on all pages.
	clusters, items int
	// exact are the versions that the client wants, by UID; nil for the newest.
	exact map[string]string

	page     *page
	failures []*fault.Fault
	// absent are the refusals of members that do not have the resource.
	absent []*fault.Fault
	// usual is what the first page had the last time; zero if that is not known.
	usual share
	// late are those that had not begun to answer when the header was sent, or have not yet.
	late []fleet.Member
	// answered counts members that have a part in this page.
	answered int
}

// list answers a list.
func (h *Handler) list(w http.ResponseWriter, r *http.Request, q *request) error {
	accepted, err := forms(r)
	if err != nil {
		return err
	}
	for i, form := range accepted {
		l, err := h.newListing(r.Context(), w, q, form)
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

// newListing reads what the client wants to have listed.
func (h *Handler) newListing(ctx context.Context, w http.ResponseWriter, q *request, f form) (*listing, error) {
	own := *q
	own.query = maps.Clone(q.query) // the same request may be listed in another form
	l := &listing{request: &own, h: h, form: f, first: true, since: time.Now(), next: q.members}
	l.informer = l.isInformers()
	l.page = newPage(w, l)
	if text := q.query.Get("limit"); text != "" {
		var err error
		if l.limit, err = strconv.Atoi(text); err != nil || l.limit < 0 {
			return nil, fault.Refuse(http.StatusBadRequest, fmt.Sprintf("limit %q is no number of objects", text))
		}
	}
	if text := q.query.Get("continue"); text != "" {
		token, err := version.ParseContinue(text)
		if err != nil {
			return nil, fault.Refuse(http.StatusBadRequest, fmt.Sprintf("reading the continue token: %v", err))
		}
		l.resume(token)
		return l, nil
	}
	l.at = h.clock.Now()
	if l.limit > 0 {
		l.usual, _ = h.usual.Get(l.about())
	}
	return l, l.readVersion(ctx)
}

// resume goes on where the page before ended. Clusters that joined since are not in the
// list, as objects that were created are not.
func (l *listing) resume(token version.Continue) {
	l.first, l.at, l.clusters, l.items = false, version.Version{Time: token.Time, Replica: token.Replica}, token.Clusters, token.Items
	l.pageNumber, l.informer = token.Page, token.Informer
	l.page.meta.APIVersion, l.page.meta.Kind = token.APIVersion, token.Kind
	l.last = token.Next == "" || slices.Contains(token.Deferred, token.Next)
	later := func(cluster string) bool { return slices.Contains(token.Deferred, cluster) }
	now := func(cluster string) bool { return !later(cluster) && cluster >= token.Next }
	if l.last {
		later, now = func(string) bool { return false }, later
	}
	l.next, l.deferred = nil, nil
	for _, m := range l.members {
		switch {
		case now(m.Name()):
			l.next = append(l.next, m)
		case later(m.Name()):
			l.deferred = append(l.deferred, m)
		}
	}
	if len(l.next) > 0 && l.next[0].Name() == token.Next {
		if l.memberToken = token.Member; token.Member != "" {
			l.begun = l.next[0]
		}
	}
	for _, parameter := range []string{"resourceVersion", "resourceVersionMatch"} {
		l.query.Del(parameter) // that was for the first page
	}
}

// readVersion finds out which versions of the objects are wanted. The newest are at least
// as new as any that the client knows.
func (l *listing) readVersion(ctx context.Context) error {
	text := l.query.Get("resourceVersion")
	if text == "" || text == "0" {
		return nil
	}
	wanted, err := version.Parse(text)
	ofMember := version.OfMember(text) != 0 // the view may have been Single
	switch {
	case ofMember && !l.informer: // an informer that gets 410 may list next as people do
		return fault.Refuse(http.StatusGone, "too old resource version: "+err.Error())
	case err != nil && !ofMember:
		return fault.Refuse(http.StatusBadRequest, err.Error())
	}
	// A version of a replica whose clock is ahead: the list's is not less.
	if l.h.clock.Follow(wanted.Time) && l.at.Time <= wanted.Time {
		l.at = l.h.clock.Now()
	}
	l.query.Del("resourceVersion")
	if l.query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchExact) {
		l.query.Del("resourceVersionMatch")
		return nil
	}
	exact, ok := l.h.positions.Find(ctx, wanted, l.view.Account)
	// A cluster that had no part in that version has none now.
	l.next = slices.DeleteFunc(slices.Clone(l.next), func(m fleet.Member) bool { return exact[m.UID()] == "" })
	if !ok || len(l.next) == 0 {
		return fault.Refuse(http.StatusGone, fmt.Sprintf("too old resource version: %s: list again without a version", text))
	}
	// Other pages would not know the version, so there is one.
	l.exact, l.limit = exact, 0
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

// isLastMember reports whether what follows on later pages is the rest of one member's objects,
// who says how many they are. Nobody knows that of members that have not been asked.
func (l *listing) isLastMember() bool {
	return l.memberToken != "" && len(l.next) == 1 && len(l.deferred) == 0
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
	wait := waitLimits{timeout: l.view.Timeout}
	if l.limit > 0 && !l.last && l.memberToken == "" && l.deferredBytes() < maxDeferred {
		wait.hold, wait.begun = hold, l.page.items > 0
	}
	if l.limit == 0 && l.exact == nil && !l.view.FailWhenUnreachable && !l.informer {
		wait.hold, wait.late = l.view.Timeout/2, true
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
			l.late = append(l.late, p.member)
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
			l.late = slices.DeleteFunc(l.late, func(m fleet.Member) bool { return m == p.member })
		}
		return late, nil
	}
}

// lateFaults say in Warnings that members are late.
func (l *listing) lateFaults() []*fault.Fault {
	var faults []*fault.Fault
	for _, m := range l.late {
		faults = append(faults, &fault.Fault{Cluster: m.Name(), Reason: "no answer within half of the view's timeout"})
	}
	return faults
}

// take puts one member's items on the page. It reports whether the page needs no more of
// the member.
func (l *listing) take(p *memberList, deferring bool) (complete bool, err error) {
	if p.failure != nil {
		return true, l.fail(p.member, p.failure, deferring)
	}
	token, err := l.page.add(p)
	var broken *brokenError
	switch {
	case errors.As(err, &broken):
		return true, l.fail(p.member, fault.Of(p.member.Name(), broken), deferring)
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
	if l.view.FailWhenUnreachable && len(l.failures) > 0 {
		return fault.Unreachable(l.failures)
	}
	if l.answered > 0 || !l.first || len(l.next)+len(l.deferred) > 0 {
		return nil
	}
	return noneAnswered(l.failures, l.absent)
}

// requestTo is what one member is asked, which may be the first of next that was begun.
func (l *listing) requestTo(m fleet.Member) memberRequest {
	query := maps.Clone(l.query)
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
	return memberRequest{method: http.MethodGet, path: l.path.String(), query: query, accept: l.form.accept, timeout: l.view.Timeout}
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

// noneAnswered is the error of a request in which no member has a part.
func noneAnswered(failures, absent []*fault.Fault) error {
	silent := slices.DeleteFunc(slices.Clone(failures), func(f *fault.Fault) bool { return f.Code != 0 && f.Code < http.StatusInternalServerError })
	if len(silent) > 0 {
		return fault.NoneAnswered(silent)
	}
	f := slices.Concat(failures, absent)[0]
	return f
}

// errPageFull says that a member's items do not fit on a page that has others.
var errPageFull = errors.New("the page is full")

// brokenError is a member's answer that is none, or that broke off.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return "its answer is not usable: " + e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// eof reports whether an answer was read to its end.
func eof(err error) bool { return errors.Is(err, io.EOF) }
