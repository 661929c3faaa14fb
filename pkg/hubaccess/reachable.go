package hubaccess

import (
	"context"
	"crypto/sha256"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/lru"
)

const (
	// listTTL is how long the answer to a user is used again: no longer than one
	// decision, so the decisions in it come from the hub and not from a cache.
	listTTL = decisionTTL
	// listTimeout bounds the work on one answer.
	listTimeout = 30 * time.Second
	// parallelDecisions is how many questions about one list the hub is asked at a
	// time, and maxDecisions how many about all lists.
	parallelDecisions = 16
	maxDecisions      = 64
	// maxLists is how many answers are kept: of users, for verbs and views.
	maxLists = 1024
)

// lists finds out which of many things a user may do. That is a question for each, so
// each list is made once at a time, and kept for a while.
type lists struct {
	// authorizer caches nothing.
	authorizer authorizer.Authorizer
	asking     singleflight.Group
	turns      chan struct{}
	made       *lru.Cache // madeList by the list's key
}

type madeList struct {
	names []string
	at    time.Time
}

func newLists(uncached authorizer.Authorizer) *lists {
	return &lists{authorizer: uncached, turns: make(chan struct{}, maxDecisions), made: lru.New(maxLists)}
}

// once returns a list that was made lately, or what list returns. The caller must not
// change it.
func (l *lists) once(ctx context.Context, key [sha256.Size]byte, list func(context.Context) ([]string, error)) ([]string, error) {
	if made, ok := l.made.Get(key); ok {
		if made := made.(madeList); time.Since(made.at) < listTTL {
			return made.names, nil
		}
	}
	done := l.asking.DoChan(string(key[:]), func() (any, error) {
		// Others may wait for the answer too if this request goes away.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTimeout)
		defer cancel()
		made := madeList{at: time.Now()} // the first decision is from then
		names, err := list(ctx)
		if made.names = names; err == nil {
			l.made.Add(key, made)
		}
		return names, err
	})
	select {
	case result := <-done:
		names, _ := result.Val.([]string)
		return names, result.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// filter returns the names that the hub allows. question is what to ask about a name,
// unless that is known to be allowed.
func (l *lists) filter(ctx context.Context, names []string, question func(name string) (_ authorizer.Attributes, known bool)) ([]string, error) {
	allowed := make([]bool, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelDecisions)
	for i, name := range names {
		asked, known := question(name)
		if known {
			allowed[i] = true
			continue
		}
		group.Go(func() (err error) {
			allowed[i], err = l.may(ctx, asked)
			return err
		})
	}
	err := group.Wait()
	kept := make([]string, 0, len(names))
	for i, name := range names {
		if allowed[i] {
			kept = append(kept, name)
		}
	}
	return kept, err
}

func (l *lists) may(ctx context.Context, a authorizer.Attributes) (bool, error) {
	select {
	case l.turns <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-l.turns }()
	decision, _, err := l.authorizer.Authorize(ctx, a)
	return decision == authorizer.DecisionAllow && err == nil, err
}
