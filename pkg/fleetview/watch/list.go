package watch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// list lists the member, and sends what is different from what the client has. At first
// the client has nothing, so everything is ADDED.
func (m *member) list(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-m.known:
	}
	if !m.knows() {
		// The difference cannot be known.
		m.s.expire()
		return errEnded
	}
	fresh := objects{}
	as := lister{m.s.form.media().list, m.source}
	if m.silent {
		as = keys
	}
	meta, err := m.pages(ctx, url.Values{}, as, func(e event) error {
		if fresh.put(e.key); len(fresh) > pageSize {
			m.begun(nil) // the client gets the first ones before all are listed
		}
		if m.silent {
			return m.s.room(len(fresh))
		}
		return m.update(e)
	})
	if err != nil {
		return err
	}
	if meta.ResourceVersion == "" {
		return errors.New("reading a list: it has no resourceVersion")
	}
	if of, err := merge.ItemsOf(meta); err == nil && !m.silent { // a Table does not say it
		m.s.mu.Lock()
		m.s.says(m, of)
		m.s.mu.Unlock()
	}
	for name, k := range m.shown { // no other goroutine writes it once it is loaded
		if _, ok := fresh[name]; !ok {
			if err := m.gone(name, k); err != nil {
				return err
			}
		}
	}
	m.endPart(meta, fresh)
	m.silent = false
	return nil
}

// knows reports whether it is known which objects the client has. It is not if load has not
// found out, or later ones only, of which events would have told if the member still knew
// them.
func (m *member) knows() bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.loaded && m.reached >= m.upTo
}

// emitPart is emit for an event after which the client has a part only of the member's
// objects, until endPart. Before the first of them it has what it had: a member that does not
// answer keeps nobody from going on.
func (m *member) emitPart(e event) error {
	return m.s.emit(m, e, func(int64) {
		if !m.part {
			m.part = true
			m.s.open++
		}
		m.sending = true
		m.show(e)
	})
}

// endPart says that the client has all objects of a list of the member.
func (m *member) endPart(list merge.ListMeta, shown objects) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.remember(len(shown) - len(m.shown))
	m.at, m.shown, m.upTo = list.ResourceVersion, shown, 0
	if m.part {
		m.part = false
		m.s.open--
	}
	m.has, m.sending = true, false
	m.s.settle(m.to.UID(), m.at)
}

// update sends an object of a list unless the client has it.
func (m *member) update(e event) error {
	name := nameOf(e.key)
	had, ok := m.shown[name]
	e.kind = modified
	switch {
	case !ok:
		e.kind = added
	case had.uid != e.key.UID:
		if err := m.gone(name, had); err != nil {
			return err
		}
		e.kind = added
	case had.version != 0 && had.version == version.OfMember(e.key.Version):
		return nil
	}
	return m.emitPart(e)
}

// gone sends DELETED for an object of which the key is all that is left.
func (m *member) gone(name string, k known) error {
	e := event{kind: deleted}
	e.key.Namespace, e.key.Name, _ = strings.Cut(name, "/")
	e.key.UID, e.key.Version = k.uid, fmt.Sprint(k.version)
	m.s.mu.Lock()
	e.key.APIVersion, e.key.Kind = m.s.of.APIVersion, m.s.of.Kind
	m.s.mu.Unlock()
	return m.emitPart(e)
}

// leave sends DELETED for all objects of a member that is not in the view any more. Its
// run has returned.
func (m *member) leave() {
	m.s.mu.Lock()
	m.reached = m.upTo // a DELETED of what the client does not have does no harm
	unnamed := m.s.of.Kind == "" && len(m.shown) > 0
	m.s.mu.Unlock()
	if unnamed || !m.knows() {
		m.s.expire()
		return
	}
	for name, k := range m.shown {
		if m.gone(name, k) != nil {
			return
		}
	}
	m.endPart(merge.ListMeta{}, nil)
}

// load learns which objects the client has: those at the version that its watch goes on
// from, or now if that is too old; events tell the rest. What it cannot learn is missed
// only if the member leaves or must be listed again.
func (m *member) load(ctx context.Context, at string) {
	defer close(m.known)
	exact := url.Values{"resourceVersion": {at}, "resourceVersionMatch": {"Exact"}}
	for backoff := minBackoff; ctx.Err() == nil; backoff = min(2*backoff, maxBackoff) {
		found := objects{}
		meta, err := m.pages(ctx, exact, keys, func(e event) error {
			found.put(e.key)
			return m.s.room(len(found))
		})
		if errors.Is(err, errEnded) {
			return
		}
		if err == nil {
			m.know(found, meta.ResourceVersion, exact.Has("resourceVersion"))
			return
		}
		if refused := new(fault.Fault); errors.Is(err, errExpired) || errors.As(err, &refused) && refused.Code == http.StatusBadRequest {
			exact = url.Values{}
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
	}
}

// know adds what load has found, except for objects that events were about.
func (m *member) know(found objects, at string, exact bool) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if !exact {
		m.upTo = version.OfMember(at)
	}
	before := len(m.shown)
	for name, k := range found {
		if !m.touched[name] {
			m.shown[name] = k
		}
	}
	m.loaded, m.touched = true, nil
	m.s.remember(len(m.shown) - before)
}

// pages reads a list page by page, and returns its version.
func (m *member) pages(ctx context.Context, more url.Values, as lister, visit func(event) error) (merge.ListMeta, error) {
	limit := []string{strconv.Itoa(pageSize)}
	query := url.Values{"limit": limit}
	for key, value := range more {
		query[key] = value
	}
	for {
		meta, err := m.page(ctx, query, as, visit)
		if err != nil {
			return meta, err
		}
		if meta.Continue == "" {
			return meta, nil
		}
		query = url.Values{"limit": limit, "continue": {meta.Continue}}
	}
}

func (m *member) page(ctx context.Context, query url.Values, as lister, visit func(event) error) (merge.ListMeta, error) {
	body, err := m.get(ctx, query, as.accept)
	if err != nil {
		return merge.ListMeta{}, err
	}
	defer body.Close()
	// A list that stands still is as good as none: nothing says that it ever ends.
	still := time.AfterFunc(m.s.o.MemberTimeout, func() { body.Close() })
	defer still.Stop()
	return as.source.list(body, func(e event) error {
		if err := checkNames(e.key); err != nil {
			return err
		}
		still.Stop() // it is this side that a visit may wait for
		err := visit(e)
		still.Reset(m.s.o.MemberTimeout)
		return err
	})
}
