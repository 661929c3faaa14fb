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
)

// list lists the member, and sends what is different from what the client has. At first
// the client has nothing, so everything is ADDED.
func (m *member) list(ctx context.Context) error {
	if m.silent {
		return m.skip(ctx)
	}
	fresh := objects{}
	meta, err := m.pages(ctx, func(e event) error {
		if fresh.put(e.key); len(fresh) > pageSize {
			m.begun(nil) // the client gets the first ones before all are listed
		}
		return m.update(e)
	})
	if err != nil {
		return err
	}
	for name, k := range m.shown { // no other goroutine writes it
		if _, ok := fresh[name]; !ok {
			if err := m.gone(name, k); err != nil {
				return err
			}
		}
	}
	m.endPart(meta, fresh)
	return nil
}

// skip goes on from what the member has now, which is not known: a page tells the version.
func (m *member) skip(ctx context.Context) error {
	meta, err := m.page(ctx, url.Values{"limit": {"1"}}, func(event) error { return nil })
	if err != nil {
		return err
	}
	m.endPart(meta, nil)
	m.silent = false
	return nil
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

// endPart says that the client has all objects of a list of the member; nil if they are not known.
func (m *member) endPart(list merge.ListMeta, shown objects) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.remember(len(shown) - len(m.shown))
	m.at, m.shown = list.ResourceVersion, shown
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
	unnamed := m.s.of.Kind == "" && len(m.shown) > 0
	m.s.mu.Unlock()
	if unnamed || m.shown == nil {
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

// pages reads a list page by page, and returns what the last page says of it.
func (m *member) pages(ctx context.Context, visit func(event) error) (merge.ListMeta, error) {
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for {
		meta, err := m.page(ctx, query, visit)
		if err != nil || meta.Continue == "" {
			return meta, err
		}
		query.Set("continue", meta.Continue)
	}
}

// page reads one page. It notes what the objects are; a Table does not say it.
func (m *member) page(ctx context.Context, query url.Values, visit func(event) error) (merge.ListMeta, error) {
	body, err := m.get(ctx, query, m.s.form.media().list)
	if err != nil {
		return merge.ListMeta{}, err
	}
	defer body.Close()
	// A list that stands still is as good as none: nothing says that it ever ends.
	still := time.AfterFunc(m.s.o.MemberTimeout, func() { body.Close() })
	defer still.Stop()
	meta, err := m.source.list(body, func(e event) error {
		if err := checkNames(e.key); err != nil {
			return err
		}
		still.Stop() // it is this side that a visit may wait for
		err := visit(e)
		still.Reset(m.s.o.MemberTimeout)
		return err
	})
	if err == nil && meta.ResourceVersion == "" {
		err = errors.New("reading a list: it has no resourceVersion")
	}
	if of, unknown := merge.ItemsOf(meta); err == nil && unknown == nil {
		m.s.mu.Lock()
		m.s.says(m, of)
		m.s.mu.Unlock()
	}
	return meta, err
}
