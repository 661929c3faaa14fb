package watch

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/url"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
)

// run follows the member until ctx ends.
func (r *reflector) run(ctx context.Context) {
	defer close(r.done)
	for backoff := minBackoff; ctx.Err() == nil; {
		began := time.Now()
		err := r.listAndWatch(ctx)
		r.begun(err)
		r.s.heard(r.member)
		if errors.Is(err, errEnded) {
			return
		}
		// Objects that it sends later may have changed since the beginning.
		r.silent = false
		if time.Since(began) >= maxBackoff {
			backoff = minBackoff
			if errors.Is(err, io.EOF) {
				continue // it ended in its own time, as watches do
			}
		}
		pause := rand.N(backoff)
		if refused := new(fault.Fault); errors.As(err, &refused) && refused.Lasting() {
			if r.s.refuse(r.member, refused); !r.missed && r.s.awaits(r.member) {
				r.refusalPause = acceptedPause
			}
			pause = max(pause, r.refusalPause)
			r.refusalPause = min(2*r.refusalPause, refusedPause)
		}
		r.s.missed(r.member, err)
		backoff = min(2*backoff, maxBackoff)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// listAndWatch lists the member if it must be, and sends its events until its stream ends.
func (r *reflector) listAndWatch(ctx context.Context) error {
	if r.at == "" && r.asksInitial() {
		next, body, err := r.initial(ctx)
		r.initialOnce = true
		switch {
		case err == nil:
			defer body.Close()
			r.s.arrived(r.member)
			return r.events(next)
		case !errors.Is(err, errNoInitial):
			return err
		}
	}
	if r.at == "" {
		if err := apart(func() error { return r.list(ctx) }); err != nil {
			return err
		}
	}
	r.s.arrived(r.member)
	query := url.Values{"watch": {"1"}, "resourceVersion": {r.at}, "allowWatchBookmarks": {"true"}}
	body, err := r.get(ctx, query, r.s.form.Media().Watch)
	if errors.Is(err, encoding.ErrExpired) {
		return r.forget()
	}
	if err != nil {
		return err
	}
	defer body.Close()
	return r.events(r.source.Events(body))
}

// apart calls do on a stack of its own. Lists are read deeper in the stack than events; a
// goroutine that did both would keep a stack for lists for as long as its watch lasts.
func apart(do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return <-done
}

// events sends the events of a watch that has begun, until it ends.
func (r *reflector) events(next func() (encoding.Event, error)) error {
	r.begun(nil)
	r.s.accept(r.member)
	r.refusalPause = acceptedPause
	for {
		e, err := next()
		if err == nil {
			err = r.handle(e)
		}
		if errors.Is(err, encoding.ErrExpired) {
			return r.forget()
		}
		if err != nil {
			return err
		}
	}
}

// forget makes listAndWatch list the member, which does not know the version any more. Objects that
// are gone since can be told only if it is known what the client has; otherwise the stream ends.
func (r *reflector) forget() error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.shown == nil {
		r.s.fail(expired())
		return errEnded
	}
	r.at = ""
	return encoding.ErrExpired
}

// handle sends one event on.
func (r *reflector) handle(e encoding.Event) error {
	if e.Kind == encoding.Bookmark {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		r.s.says(r.member, typeOf(e.Key))
		if e.Key.Version != "" && e.Key.Version != r.at {
			r.at = e.Key.Version
			r.s.settle(r.to.UID(), r.at)
		}
		return nil
	}
	if err := checkNames(e.Key); err != nil {
		return err
	}
	return r.s.emit(r.member, e, func(now int64) {
		if e.Key.Version != "" {
			r.at = e.Key.Version
		}
		r.s.step(now, r.to.UID(), r.at)
		r.show(e)
	})
}
