package watch

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
)

// list lists the member, and sends what is different from what the client has. At first
// the client has nothing, so everything is ADDED.
func (r *reflector) list(ctx context.Context) error {
	if r.silent {
		return r.skip(ctx)
	}
	fresh := objects{}
	meta, err := r.pages(ctx, func(e encoding.Event) error {
		if fresh.put(e.Key); len(fresh) > pageSize {
			r.begun(nil) // the client gets the first ones before all are listed
		}
		return r.update(e)
	})
	if err != nil {
		return err
	}
	for name, k := range r.shown { // no other goroutine writes it
		if _, ok := fresh[name]; !ok {
			if err := r.gone(name, k); err != nil {
				return err
			}
		}
	}
	r.endPart(meta, fresh)
	return nil
}

// skip goes on from what the member has now, which is not known: a page tells the version.
func (r *reflector) skip(ctx context.Context) error {
	meta, err := r.page(ctx, url.Values{"limit": {"1"}}, func(encoding.Event) error { return nil })
	if err != nil {
		return err
	}
	r.endPart(meta, nil)
	r.silent = false
	return nil
}

// emitPart is emit for an event after which the client has a part only of the member's
// objects, until endPart. Before the first of them it has what it had: a member that does not
// answer keeps nobody from going on.
func (r *reflector) emitPart(e encoding.Event) error {
	return r.s.emit(r.member, e, func(int64) {
		if !r.part {
			r.part = true
			r.s.open++
		}
		r.sending = true
		r.show(e)
	})
}

// endPart says that the client has all objects of a list of the member; nil if they are not known.
func (r *reflector) endPart(list merge.ListMeta, shown objects) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.remember(len(shown) - len(r.shown))
	r.at, r.shown = list.ResourceVersion, shown
	if r.part {
		r.part = false
		r.s.open--
	}
	r.has, r.sending = true, false
	r.s.settle(r.to.UID(), r.at)
}

// update sends an object of a list unless the client has it.
func (r *reflector) update(e encoding.Event) error {
	name := nameOf(e.Key)
	had, ok := r.shown[name]
	e.Kind = encoding.Modified
	switch {
	case !ok:
		e.Kind = encoding.Added
	case had.uid != e.Key.UID:
		if err := r.gone(name, had); err != nil {
			return err
		}
		e.Kind = encoding.Added
	case had.version != 0 && had.version == version.OfMember(e.Key.Version):
		return nil
	}
	return r.emitPart(e)
}

// gone sends DELETED for an object of which the key is all that is left.
func (r *reflector) gone(name string, k known) error {
	e := encoding.Event{Kind: encoding.Deleted}
	e.Key.Namespace, e.Key.Name, _ = strings.Cut(name, "/")
	e.Key.UID, e.Key.Version = k.uid, fmt.Sprint(k.version)
	r.s.mu.Lock()
	e.Key.APIVersion, e.Key.Kind = r.s.of.APIVersion, r.s.of.Kind
	r.s.mu.Unlock()
	return r.emitPart(e)
}

// leave sends DELETED for all objects of a member that is not in the view any more. Its
// run has returned.
func (r *reflector) leave() {
	r.s.mu.Lock()
	unnamed := r.s.of.Kind == "" && len(r.shown) > 0
	r.s.mu.Unlock()
	if unnamed || r.shown == nil {
		r.s.expire()
		return
	}
	for name, k := range r.shown {
		if r.gone(name, k) != nil {
			return
		}
	}
	r.endPart(merge.ListMeta{}, nil)
}

// pages reads a list page by page, and returns what the last page says of it.
func (r *reflector) pages(ctx context.Context, visit func(encoding.Event) error) (merge.ListMeta, error) {
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for {
		meta, err := r.page(ctx, query, visit)
		if err != nil || meta.Continue == "" {
			return meta, err
		}
		query.Set("continue", meta.Continue)
	}
}

// page reads one page. It notes what the objects are; a Table does not say it.
func (r *reflector) page(ctx context.Context, query url.Values, visit func(encoding.Event) error) (merge.ListMeta, error) {
	body, err := r.get(ctx, query, r.s.form.Media().List)
	if err != nil {
		return merge.ListMeta{}, err
	}
	defer body.Close()
	// A list that stands still is as good as none: nothing says that it ever ends.
	still := time.AfterFunc(r.s.o.MemberTimeout, func() { body.Close() })
	defer still.Stop()
	meta, err := r.source.List(body, func(e encoding.Event) error {
		if err := checkNames(e.Key); err != nil {
			return err
		}
		still.Stop() // it is this side that a visit may wait for
		err := visit(e)
		still.Reset(r.s.o.MemberTimeout)
		return err
	})
	if err == nil && meta.ResourceVersion == "" {
		err = errors.New("reading a list: it has no resourceVersion")
	}
	if of, unknown := merge.ItemsOf(meta); err == nil && unknown == nil {
		r.s.mu.Lock()
		r.s.says(r.member, of)
		r.s.mu.Unlock()
	}
	return meta, err
}

// show notes what the client has after an event, if that is known. The caller holds the stream's mu.
func (r *reflector) show(e encoding.Event) {
	if r.shown == nil {
		return
	}
	before := len(r.shown)
	if e.Kind == encoding.Deleted {
		delete(r.shown, nameOf(e.Key))
	} else {
		r.shown.put(e.Key)
	}
	r.s.remember(len(r.shown) - before)
}
