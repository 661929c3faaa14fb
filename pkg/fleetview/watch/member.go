package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// errExpired says that a member does not know the version any more.
var errExpired = errors.New("the cluster does not know the version any more")

// member is one cluster in a stream. One goroutine runs it.
type member struct {
	s      *stream
	to     Member
	source source
	cancel context.CancelFunc
	// done is closed when run has returned; first has the outcome of the first request.
	done  chan struct{}
	first chan error
	once  sync.Once

	// silent says that the client does not want the objects that the member has now. Its
	// goroutine alone uses it.
	silent bool
	// initialOnce says that the member was asked for initial events. A list
	// says what is different after that.
	initialOnce bool
	// refusalPause is the pause after the next refusal. Its goroutine alone uses it.
	refusalPause time.Duration

	// The fields below are the stream's: its mu guards them.

	// now is the time of the event that is being written.
	now int64
	// at is the version that the member's stream goes on from, or empty if the member
	// must be listed.
	at string
	// shown are the objects that the client has. It is nil if they are not known, because the
	// client has them from another request.
	shown objects
	// part says that the client may have a part only of a list.
	part bool
	// of is what the member's objects are, as soon as it has said so, and heard says that its
	// first request has ended.
	of    metav1.TypeMeta
	heard bool
	// has says that the client has got all of the member's objects once, missed that a request
	// has failed, and sending that objects of the newest one have come.
	has, missed, sending bool
	// leaving says that the member is not in the view any more.
	leaving bool
}

// newMember returns a member that goes on from version at. Without one the client has nothing
// of it.
func newMember(s *stream, to Member, at string) *member {
	m := &member{s: s, to: to, at: at, has: at != "", refusalPause: refusedPause, done: make(chan struct{}), first: make(chan error, 1)}
	if at == "" {
		m.shown = objects{}
	}
	number := version.Number(to.UID())
	m.source = s.form.source(s.o.Rewriter(to, func(v string) string {
		return version.Version{Time: m.now, Replica: s.o.Clock.Replica, Cluster: number, Member: version.OfMember(v)}.String()
	}))
	return m
}

// begun says once how the first request to the member went.
func (m *member) begun(err error) { m.once.Do(func() { m.first <- err }) }

// run follows the member until ctx ends.
func (m *member) run(ctx context.Context) {
	defer close(m.done)
	for backoff := minBackoff; ctx.Err() == nil; {
		began := time.Now()
		err := m.follow(ctx)
		m.begun(err)
		m.s.heard(m)
		if errors.Is(err, errEnded) {
			return
		}
		// Objects that it sends later may have changed since the beginning.
		m.silent = false
		if time.Since(began) >= maxBackoff {
			backoff = minBackoff
			if errors.Is(err, io.EOF) {
				continue // it ended in its own time, as watches do
			}
		}
		pause := rand.N(backoff)
		if refused := new(fault.Fault); errors.As(err, &refused) && refused.Lasting() {
			if m.s.refuse(m, refused); !m.missed && m.s.awaits(m) {
				m.refusalPause = acceptedPause
			}
			pause = max(pause, m.refusalPause)
			m.refusalPause = min(2*m.refusalPause, refusedPause)
		}
		m.s.missed(m, err)
		backoff = min(2*backoff, maxBackoff)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// follow lists the member if it must be, and sends its events until its stream ends.
func (m *member) follow(ctx context.Context) error {
	if m.at == "" && m.asksInitial() {
		err := m.initial(ctx)
		if m.initialOnce = true; !errors.Is(err, errNoInitial) {
			return err
		}
	}
	if m.at == "" {
		if err := apart(func() error { return m.list(ctx) }); err != nil {
			return err
		}
	}
	m.s.arrived(m)
	query := url.Values{"watch": {"1"}, "resourceVersion": {m.at}, "allowWatchBookmarks": {"true"}}
	body, err := m.get(ctx, query, m.s.form.media().watch)
	if errors.Is(err, errExpired) {
		return m.forget()
	}
	if err != nil {
		return err
	}
	defer body.Close()
	return m.events(m.source.events(body))
}

// apart calls do on a stack of its own. Lists are read deeper in the stack than events; a
// goroutine that did both would keep a stack for lists for as long as its watch lasts.
func apart(do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return <-done
}

// events sends the events of a watch that has begun, until it ends.
func (m *member) events(next func() (event, error)) error {
	m.begun(nil)
	m.s.accept(m)
	m.refusalPause = acceptedPause
	for {
		e, err := next()
		if err == nil {
			err = m.handle(e)
		}
		if errors.Is(err, errExpired) {
			return m.forget()
		}
		if err != nil {
			return err
		}
	}
}

// listed reports whether the client has the member's objects.
func (m *member) listed() bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.at != ""
}

// forget makes follow list the member, which does not know the version any more. Objects that
// are gone since can be told only if it is known what the client has; otherwise the stream ends.
func (m *member) forget() error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.shown == nil {
		m.s.fail(expired())
		return errEnded
	}
	m.at = ""
	return errExpired
}

// handle sends one event on.
func (m *member) handle(e event) error {
	if e.kind == bookmark {
		m.s.mu.Lock()
		defer m.s.mu.Unlock()
		m.s.says(m, typeOf(e.key))
		if e.key.Version != "" && e.key.Version != m.at {
			m.at = e.key.Version
			m.s.settle(m.to.UID(), m.at)
		}
		return nil
	}
	if err := checkNames(e.key); err != nil {
		return err
	}
	return m.s.emit(m, e, func(now int64) {
		if e.key.Version != "" {
			m.at = e.key.Version
		}
		m.s.step(now, m.to.UID(), m.at)
		m.show(e)
	})
}

// show notes what the client has after an event, if that is known. The caller holds the stream's mu.
func (m *member) show(e event) {
	if m.shown == nil {
		return
	}
	before := len(m.shown)
	if e.kind == deleted {
		delete(m.shown, nameOf(e.key))
	} else {
		m.shown.put(e.key)
	}
	m.s.remember(len(m.shown) - before)
}

func typeOf(k merge.Key) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: k.APIVersion, Kind: k.Kind}
}

// get sends a request to the member, which has the stream's timeout to begin its answer,
// and returns the answer's body.
func (m *member) get(ctx context.Context, more url.Values, accept string) (io.ReadCloser, error) {
	query := url.Values{}
	for _, values := range []url.Values{m.s.o.Query, more} {
		for key, value := range values {
			query[key] = value
		}
	}
	if include := m.s.form.media().includeObject; include != "" {
		query.Set("includeObject", include)
	}
	ctx, cancel := context.WithCancel(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, (&url.URL{Path: m.s.o.Path, RawQuery: query.Encode()}).String(), nil)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("making a request for %q: %w", m.s.o.Path, err)
	}
	r.Header.Set("Accept", accept)
	late := time.AfterFunc(m.s.o.MemberTimeout, cancel)
	response, err := m.to.RoundTrip(r)
	if !late.Stop() {
		if err == nil {
			response.Body.Close()
		}
		err = fault.ErrTimeout
	}
	if err != nil {
		cancel()
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer cancel()
		defer response.Body.Close()
		if response.StatusCode == http.StatusGone {
			return nil, errExpired
		}
		return nil, fault.Read(m.to.Name(), response)
	}
	return &body{response.Body, cancel}, nil
}

// body is the body of an answer, with what ends its request.
type body struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *body) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}
