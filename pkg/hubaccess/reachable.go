package hubaccess

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	"k8s.io/apiserver/pkg/authentication/user"
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
	// maxLists is how many users' answers are kept.
	maxLists = 256
)

// reachable finds out which clusters a user may reach. That is a question for
// each cluster, so it is asked once at a time for each user.
type reachable struct {
	// authorizer caches nothing.
	authorizer authorizer.Authorizer
	asking     singleflight.Group
	turns      chan struct{}
	lists      *lru.Cache // reachableList by keyOf the user
}

type reachableList struct {
	names []string
	at    time.Time
}

func newReachable(uncached authorizer.Authorizer) *reachable {
	return &reachable{authorizer: uncached, turns: make(chan struct{}, maxDecisions), lists: lru.New(maxLists)}
}

// of returns those of the clusters that u may reach, sorted. The caller must not
// change it.
func (r *reachable) of(ctx context.Context, u user.Info, clusters func() []string) ([]string, error) {
	key := keyOf(proxyAttributes(u, ""))
	if list, ok := r.lists.Get(key); ok {
		if list := list.(reachableList); time.Since(list.at) < listTTL {
			return list.names, nil
		}
	}
	done := r.asking.DoChan(string(key[:]), func() (any, error) {
		// Others may wait for the answer too if this request goes away.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTimeout)
		defer cancel()
		list := reachableList{at: time.Now()} // the first decision is from then
		names, err := r.ask(ctx, u, clusters())
		if list.names = names; err == nil {
			r.lists.Add(key, list)
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

// ask asks the hub about all clusters at once, and if that is denied, about each.
func (r *reachable) ask(ctx context.Context, u user.Info, names []string) ([]string, error) {
	slices.Sort(names)
	if all, err := r.may(ctx, u, ""); all || err != nil {
		return names, err
	}
	allowed := make([]bool, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelDecisions)
	for i, name := range names {
		group.Go(func() (err error) {
			allowed[i], err = r.may(ctx, u, name)
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

func (r *reachable) may(ctx context.Context, u user.Info, cluster string) (bool, error) {
	select {
	case r.turns <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-r.turns }()
	decision, _, err := r.authorizer.Authorize(ctx, proxyAttributes(u, cluster))
	return decision == authorizer.DecisionAllow && err == nil, err
}
