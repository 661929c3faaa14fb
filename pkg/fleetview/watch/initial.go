package watch

import (
	"context"
	"errors"
	"io"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// errNoInitial says that a member does not send its objects as events.
var errNoInitial = errors.New("the cluster does not send initial events")

// asksInitial reports whether the member is asked to send its objects as events (KEP-3157).
// A client that asks the view for that gets them without a pause between pages. It must
// have nothing of the member yet: what has gone is not among the events.
func (m *member) asksInitial() bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.s.o.wantsInitialEvents() && !m.initialOnce && len(m.shown) == 0
}

// initial asks the member for its objects and all that follows as events. The error is
// errNoInitial if it does not send them; the client may have some then.
func (m *member) initial(ctx context.Context) error {
	query := url.Values{
		"watch": {"1"}, "allowWatchBookmarks": {"true"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {string(metav1.ResourceVersionMatchNotOlderThan)},
	}
	if m.s.o.ResourceVersion == "0" {
		query.Set("resourceVersion", "0") // the client takes what is there
	}
	body, err := m.get(ctx, query, m.s.form.media().watch)
	if refused := new(fault.Fault); errors.Is(err, errExpired) || errors.As(err, &refused) && refused.Lasting() && !apierrors.IsNotAcceptable(err) {
		return errNoInitial // or no watch; its list says more
	}
	if err != nil {
		return err
	}
	defer body.Close()
	next := m.source.events(body)
	if err := m.initialEvents(body, next); err != nil {
		return err
	}
	m.s.arrived(m)
	return m.events(next)
}

// initialEvents sends events on up to the bookmark behind the initial ones.
func (m *member) initialEvents(body io.Closer, next func() (event, error)) error {
	// One that is silent without the bookmark does not know it, and would never send it. Half
	// of its time is left for the list.
	silence := m.s.o.MemberTimeout / 2
	still := time.AfterFunc(silence, func() { body.Close() })
	defer still.Stop()
	for n := 0; ; n++ {
		e, err := next()
		inTime := still.Stop() // it is this side that the rest may wait for
		switch {
		case !inTime, errors.Is(err, io.EOF), errors.Is(err, errExpired):
			return errNoInitial
		case err != nil:
			return err
		case e.kind == bookmark && e.initial:
			return m.endInitial(e)
		case e.kind == bookmark:
		default:
			if err := checkNames(e.key); err != nil {
				return err
			}
			if err := m.emitPart(e); err != nil {
				return err
			}
		}
		if n >= pageSize {
			m.begun(nil) // the client gets the first ones before all are there
		}
		still.Reset(silence)
	}
}

// endInitial says that the client has all objects of the member, as of a bookmark.
func (m *member) endInitial(e event) error {
	if e.key.Version == "" {
		return errors.New("reading a bookmark: it has no resourceVersion")
	}
	m.s.mu.Lock()
	m.s.says(m, typeOf(e.key))
	m.s.mu.Unlock()
	m.endPart(merge.ListMeta{ResourceVersion: e.key.Version}, m.shown)
	return nil
}
