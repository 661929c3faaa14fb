package authz

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
)

// AuthorizeCluster decides whether a user may send requests to one cluster: by the
// cluster's name, or as a cluster of a set. The reason is the hub's, of what it said
// of the name.
func (a *Authorizer) AuthorizeCluster(ctx context.Context, u user.Info, want Right, cluster string) (authorizer.Decision, string, error) {
	decision, reason, err := a.Authorize(ctx, want.OfCluster(u, cluster))
	if decision == authorizer.DecisionAllow || err != nil {
		return decision, reason, err
	}
	// All sets are asked about, whatever sets the cluster is in, so that the time that
	// the answer takes does not tell whether there is such a cluster.
	allowed, err := a.allowedSets(ctx, u, want)
	if err != nil {
		return authorizer.DecisionNoOpinion, reason, err
	}
	if set, ok := firstIn(allowed, a.sets.SetsOf(cluster)); ok {
		return authorizer.DecisionAllow, fmt.Sprintf("allowed for ManagedClusterSet %q", set), nil
	}
	return decision, reason, nil
}

// MayReach reports whether a user has a right to a cluster.
func (a *Authorizer) MayReach(ctx context.Context, u user.Info, right Right, cluster string) bool {
	decision, _, err := a.AuthorizeCluster(ctx, u, right, cluster)
	return decision == authorizer.DecisionAllow && err == nil
}

// Reachable returns those of the clusters for which a user has all the rights, sorted. The hub
// said so of each of them within 5 s, unless it is late: it needs longer to say it of all of
// them. A cluster for which the user was given the right may be missing for longer (see
// denialTTLOf). of names the clusters: answers are kept for it. The caller must not change the
// answer. If the error is ErrUnfinished, the next try goes on.
func (a *Authorizer) Reachable(ctx context.Context, u user.Info, rights []Right, of string, clusters func() []string) (names []string, late bool, err error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q", of)
	for _, right := range rights {
		fmt.Fprintf(sum, " %x", hubaccess.KeyOfQuestion(right.OfCluster(u, "")))
	}
	made, err := a.lists.once(ctx, [sha256.Size]byte(sum.Sum(nil)), u.GetName(), func(ctx context.Context) (madeList, error) {
		names := clusters()
		slices.Sort(names)
		made, err := a.withRights(ctx, u, rights, names, listTTL)
		if err != nil || time.Since(made.asked) <= listTTL {
			return made, err
		}
		// Its first answers are old by now. It is asked about them again if they are so few
		// that it helps.
		ctx, cancel := context.WithTimeout(ctx, listTTL)
		defer cancel()
		if again, err := a.withRights(ctx, u, rights, names, listTTL/2); err == nil {
			made = again
		}
		return made, nil
	})
	return made.names, err == nil && time.Since(made.asked) > listTTL, err
}

func (a *Authorizer) withRights(ctx context.Context, u user.Info, rights []Right, names []string, grantTTL time.Duration) (madeList, error) {
	made := madeList{names: names, asked: time.Now()}
	for _, right := range rights {
		with, err := a.withRight(ctx, u, right, made.names, grantTTL)
		if err != nil {
			return madeList{}, err
		}
		made = madeList{names: with.names, asked: earlier(made.asked, with.asked)}
	}
	return made, nil
}

// withRight asks the hub about all clusters at once; if that is denied, about the sets;
// and then about each cluster that is left. All at once have the name "", as in Kubernetes' own lists: a
// role with resourceNames [""], which an administrator must write, is for all of them here.
func (a *Authorizer) withRight(ctx context.Context, u user.Info, right Right, names []string, grantTTL time.Duration) (madeList, error) {
	q := questionsOf(u, func(name string) authorizer.Attributes { return right.OfCluster(u, name) })
	q.grantTTL = grantTTL
	every, err := a.lists.filter(ctx, []string{""}, q)
	if err != nil || len(every.names) > 0 {
		return madeList{names: names, asked: every.asked}, err
	}
	sets, err := a.askSets(ctx, u, right, grantTTL)
	if err != nil {
		return madeList{}, err
	}
	q.known = func(name string) bool {
		if len(sets.names) == 0 {
			return false
		}
		_, ok := firstIn(sets.names, a.sets.SetsOf(name))
		return ok
	}
	q.denialTTL = denialTTLOf(len(names))
	made, err := a.lists.filter(ctx, names, q)
	if err == nil && q.denialTTL > listTTL {
		a.lists.refresh(ctx, names, q)
	}
	made.asked = earlier(made.asked, sets.asked)
	return made, err
}

// allowedSets are the ManagedClusterSets for whose clusters a user has a right, sorted.
// The answer may be 5 s old.
func (a *Authorizer) allowedSets(ctx context.Context, u user.Info, right Right) ([]string, error) {
	made, err := a.lists.once(ctx, hubaccess.KeyOfQuestion(right.ofSet(u, "")), u.GetName(), func(ctx context.Context) (madeList, error) { return a.askSets(ctx, u, right, listTTL) })
	return made.names, err
}

func (a *Authorizer) askSets(ctx context.Context, u user.Info, right Right, grantTTL time.Duration) (madeList, error) {
	sets, err := a.sets.Sets()
	if err != nil {
		return madeList{}, err
	}
	slices.Sort(sets)
	q := questionsOf(u, func(set string) authorizer.Attributes { return right.ofSet(u, set) })
	q.grantTTL = grantTTL
	return a.lists.filter(ctx, sets, q)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// firstIn returns the first name that is among the sorted ones.
func firstIn(sorted, names []string) (string, bool) {
	for _, name := range names {
		if _, ok := slices.BinarySearch(sorted, name); ok {
			return name, true
		}
	}
	return "", false
}

// UsableViews returns those of the views that a user may use, sorted, if the user may
// list views at all; ok is false if not. The answer may be 5 s old.
func (a *Authorizer) UsableViews(ctx context.Context, u user.Info, views func() []string) (usable []string, ok bool, err error) {
	decision, _, err := a.Authorize(ctx, ViewAttributes(u, "list", ""))
	if decision != authorizer.DecisionAllow || err != nil {
		return nil, false, err
	}
	made, err := a.lists.once(ctx, hubaccess.KeyOfQuestion(ViewAttributes(u, "get", "")), u.GetName(), func(ctx context.Context) (madeList, error) {
		names := views()
		slices.Sort(names)
		return a.lists.filter(ctx, names, questionsOf(u, func(view string) authorizer.Attributes { return ViewAttributes(u, "get", view) }))
	})
	return made.names, err == nil, err
}
