package authz

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/fairqueue"
)

const (
	// listTimeout bounds the work on one answer.
	listTimeout = 30 * time.Second
	// maxDecisions is how many questions of lists the hub is asked at a time, of all users
	// together: more would wait at a small hub, where those about single requests wait with
	// them. 500 questions take 0.6 s at a hub that is 20 ms away.
	maxDecisions = 16
	// refreshing is how many questions of a list are asked at a time whose answer nobody
	// waits for.
	refreshing = 4
)

// ErrUnfinished is the error of a list for which there was not enough time to ask the hub. Its
// answers are remembered, and the next try goes on from there.
var ErrUnfinished = errors.New("the hub has not answered all questions in time")

// lists finds out which of many things a user may do. That is a question for each, so
// each list is made once at a time, and kept for a while, and what the hub said of each
// thing is remembered.
type lists struct {
	// authorizer caches nothing.
	authorizer authorizer.Authorizer
	refreshed  singleflight.Group
	turns      *fairqueue.Queue[string] // by user
	said       *memory

	mu     sync.Mutex
	making map[[sha256.Size]byte]*making
}

// making is the work on a list that some wait for.
type making struct {
	end     context.CancelFunc
	waiting int
	done    chan struct{}
	made    madeList // with err, when done is closed
	err     error
}

func newLists(uncached authorizer.Authorizer) *lists {
	return &lists{authorizer: uncached, turns: fairqueue.New[string](maxDecisions, math.MaxInt, math.MaxInt), said: newMemory(), making: map[[sha256.Size]byte]*making{}}
}

// once returns a list for a user that was made lately, or what list returns. The caller must
// not change it.
func (l *lists) once(ctx context.Context, key [sha256.Size]byte, from string, list func(context.Context) (madeList, error)) (madeList, error) {
	if made, ok := l.said.made(key); ok {
		return made, nil
	}
	l.mu.Lock()
	m := l.making[key]
	if m == nil {
		m = &making{done: make(chan struct{})}
		// Others may wait for the answer too if this request goes away.
		var asking context.Context
		asking, m.end = context.WithTimeout(context.WithoutCancel(ctx), listTimeout)
		l.making[key] = m
		go l.make(asking, key, from, m, list)
	}
	m.waiting++
	l.mu.Unlock()
	select {
	case <-m.done:
		return m.made, m.err
	case <-ctx.Done():
		l.leave(key, m)
		return madeList{}, ctx.Err()
	}
}

func (l *lists) make(ctx context.Context, key [sha256.Size]byte, from string, m *making, list func(context.Context) (madeList, error)) {
	defer m.end()
	m.made, m.err = list(ctx)
	if m.err != nil && ctx.Err() != nil {
		m.err = fmt.Errorf("%w: %w", ErrUnfinished, m.err)
	}
	if m.err == nil {
		l.said.keepMade(key, from, m.made)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.making[key] == m {
		delete(l.making, key)
	}
	close(m.done)
}

// leave ends the work on a list that nobody waits for any more. The limits
// of requests would not bound it: a user could begin lists and go away from them, faster than the hub
// answers, and take the turns of all others.
func (l *lists) leave(key [sha256.Size]byte, m *making) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.waiting--; m.waiting > 0 {
		return
	}
	if l.making[key] == m {
		delete(l.making, key)
	}
	m.end()
}

// questions are asked about names.
type questions struct {
	about func(name string) authorizer.Attributes
	// key names them and the user.
	key  [sha256.Size]byte
	user string
	// known reports whether a name is allowed anyway; nil is never.
	known func(name string) bool
	// grantTTL and denialTTL are how old an answer may be that is used again.
	grantTTL, denialTTL time.Duration
	// parallel is how many are asked at a time at most.
	parallel int
}

func questionsOf(u user.Info, about func(name string) authorizer.Attributes) questions {
	return questions{about: about, key: hubaccess.KeyOfQuestion(about("")), user: u.GetName(), grantTTL: listTTL, denialTTL: listTTL, parallel: maxDecisions}
}

// denialTTLOf is how old a denial may be in a list of so many clusters.
func denialTTLOf(clusters int) time.Duration {
	return min(max(listTTL, time.Duration(clusters)*time.Second/denialsPerSecond), maxDenialTTL)
}

// filter returns the names that the hub allows. Answers are remembered, also if there is
// no time for all of them.
func (l *lists) filter(ctx context.Context, names []string, q questions) (madeList, error) {
	known, now := l.said.of(q.key, names), l.said.now()
	used, fresh := make([]decision, len(names)), make([]decision, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(q.parallel)
	// Allowed clusters are asked about last: their answers must not be old at the end.
	for _, grants := range []bool{false, true} {
		for i, name := range names {
			switch was := known[i]; {
			case was.allowed != grants:
			case q.known != nil && q.known(name):
				used[i].allowed = true
			case was.asked > 0 && now-was.asked < q.ttlOf(was):
				used[i] = was
			default:
				group.Go(func() (err error) {
					fresh[i], err = l.may(ctx, q.user, q.about(name))
					used[i] = fresh[i]
					return err
				})
			}
		}
	}
	err := group.Wait()
	l.said.keep(q.key, q.user, names, fresh)
	if err != nil {
		return madeList{}, err
	}
	made := madeList{names: make([]string, 0, len(names)), asked: time.Now()}
	for i, name := range names {
		if used[i].allowed {
			made.names = append(made.names, name)
			if at := l.said.began.Add(used[i].asked); used[i].asked > 0 && at.Before(made.asked) {
				made.asked = at
			}
		}
	}
	return made, nil
}

// ttlOf is how old an answer may be.
func (q *questions) ttlOf(was decision) time.Duration {
	if was.allowed {
		return q.grantTTL
	}
	return q.denialTTL
}

// refresh asks again about what was denied some time ago, for the next list: nobody waits for
// it, and a list that comes again and again never has to ask about everything.
func (l *lists) refresh(ctx context.Context, names []string, q questions) {
	q.grantTTL, q.denialTTL, q.parallel = maxDenialTTL, q.denialTTL/2, refreshing
	l.refreshed.DoChan(string(q.key[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTimeout)
		defer cancel()
		return l.filter(ctx, names, q)
	})
}

func (l *lists) may(ctx context.Context, from string, a authorizer.Attributes) (decision, error) {
	release, err := l.turns.Acquire(ctx, from)
	if err != nil {
		return decision{}, err
	}
	defer release()
	if err := ctx.Err(); err != nil {
		return decision{}, err
	}
	// The hub works on a question also when nobody waits for the answer any more, so the
	// question keeps its turn: lists that begin and end would send more of them than there are
	// turns. Its answer is for the next list.
	deadline, limited := ctx.Deadline()
	ctx = context.WithoutCancel(ctx)
	if limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	asked := l.said.now()
	said, _, err := l.authorizer.Authorize(ctx, a)
	if err != nil {
		return decision{}, err
	}
	return decision{allowed: said == authorizer.DecisionAllow, asked: asked}, nil
}
