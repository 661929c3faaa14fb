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
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
)

// errNoInitial says that a member does not send its objects as events.
var errNoInitial = errors.New("the cluster does not send initial events")

// asksInitial reports whether the member is asked to send its objects as events (KEP-3157).
// A client that asks the view for that gets them without a pause between pages. It must
// have nothing of the member yet: what has gone is not among the events.
func (r *reflector) asksInitial() bool {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.s.o.wantsInitialEvents() && !r.initialOnce && len(r.shown) == 0
}

// initial asks the member for its objects and all that follows as events, and sends those on that
// are there now. It returns what reads the others, and closes the answer. The error
// is errNoInitial if the member does not send them; the client may have some then.
func (r *reflector) initial(ctx context.Context) (next func() (encoding.Event, error), body io.Closer, err error) {
	query := url.Values{
		"watch": {"1"}, "allowWatchBookmarks": {"true"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {string(metav1.ResourceVersionMatchNotOlderThan)},
	}
	if r.s.o.ResourceVersion == "0" {
		query.Set("resourceVersion", "0") // the client takes what is there
	}
	answer, err := r.get(ctx, query, r.s.form.Media().Watch)
	if refused := new(fault.Fault); errors.Is(err, encoding.ErrExpired) || errors.As(err, &refused) && refused.Lasting() && !apierrors.IsNotAcceptable(err) {
		return nil, nil, errNoInitial // or no watch; its list says more
	}
	if err != nil {
		return nil, nil, err
	}
	next = r.source.Events(answer)
	if err := r.initialEvents(answer, next); err != nil {
		answer.Close()
		return nil, nil, err
	}
	return next, answer, nil
}

// initialEvents sends events on up to the bookmark behind the initial ones.
func (r *reflector) initialEvents(body io.Closer, next func() (encoding.Event, error)) error {
	// One that is silent without the bookmark does not know it, and would never send it. Half
	// of its time is left for the list.
	silence := r.s.o.MemberTimeout / 2
	still := time.AfterFunc(silence, func() { body.Close() })
	defer still.Stop()
	for n := 0; ; n++ {
		e, err := next()
		inTime := still.Stop() // it is this side that the rest may wait for
		switch {
		case !inTime, errors.Is(err, io.EOF), errors.Is(err, encoding.ErrExpired):
			return errNoInitial
		case err != nil:
			return err
		case e.Kind == encoding.Bookmark && e.Initial:
			return r.endInitial(e)
		case e.Kind == encoding.Bookmark:
		default:
			if err := checkNames(e.Key); err != nil {
				return err
			}
			if err := r.emitPart(e); err != nil {
				return err
			}
		}
		if n >= pageSize {
			r.begun(nil) // the client gets the first ones before all are there
		}
		still.Reset(silence)
	}
}

// endInitial says that the client has all objects of the member, as of a bookmark.
func (r *reflector) endInitial(e encoding.Event) error {
	if e.Key.Version == "" {
		return errors.New("reading a bookmark: it has no resourceVersion")
	}
	r.s.mu.Lock()
	r.s.says(r.member, typeOf(e.Key))
	r.s.mu.Unlock()
	r.endPart(merge.ListMeta{ResourceVersion: e.Key.Version}, r.shown)
	return nil
}
