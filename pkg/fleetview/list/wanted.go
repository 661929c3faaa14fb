package list

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// newListing reads what the client wants to have listed.
func (s *Lister) newListing(ctx context.Context, w http.ResponseWriter, q *request.Request, f request.Form) (*listing, error) {
	own := *q
	own.Query = maps.Clone(q.Query) // the same request may be listed in another form
	l := &listing{Request: &own, lister: s, form: f, first: true, since: time.Now(), next: q.Members}
	l.informer = l.isInformers()
	l.page = newPage(w, l)
	if text := q.Query.Get("limit"); text != "" {
		var err error
		if l.limit, err = strconv.Atoi(text); err != nil || l.limit < 0 {
			return nil, fault.Refuse(http.StatusBadRequest, fmt.Sprintf("limit %q is no number of objects", text))
		}
	}
	if text := q.Query.Get("continue"); text != "" {
		token, err := version.ParseContinue(text)
		if err != nil {
			return nil, fault.Refuse(http.StatusBadRequest, fmt.Sprintf("reading the continue token: %v", err))
		}
		l.resume(token)
		return l, nil
	}
	l.at = s.clock.Now()
	if l.limit > 0 {
		l.usual, _ = s.usual.Get(l.about())
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
	for _, m := range l.Members {
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
		l.Query.Del(parameter) // that was for the first page
	}
}

// readVersion finds out which versions of the objects are wanted. The newest are at least
// as new as any that the client knows.
func (l *listing) readVersion(ctx context.Context) error {
	text := l.Query.Get("resourceVersion")
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
	if l.lister.clock.Follow(wanted.Time) && l.at.Time <= wanted.Time {
		l.at = l.lister.clock.Now()
	}
	l.Query.Del("resourceVersion")
	if l.Query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchExact) {
		l.Query.Del("resourceVersionMatch")
		return nil
	}
	exact, ok := l.lister.positions.Find(ctx, wanted, l.View.Account)
	// A cluster that had no part in that version has none now.
	l.next = slices.DeleteFunc(slices.Clone(l.next), func(m fleet.Member) bool { return exact[m.UID()] == "" })
	if !ok || len(l.next) == 0 {
		return fault.Refuse(http.StatusGone, fmt.Sprintf("too old resource version: %s: list again without a version", text))
	}
	// Other pages would not know the version, so there is one.
	l.exact, l.limit = exact, 0
	return nil
}
