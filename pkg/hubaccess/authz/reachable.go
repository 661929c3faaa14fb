package authz

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
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
	limited, cancel := withListTimeout(ctx)
	defer cancel()
	allowed, _, err := a.allowedSets(limited, u, want, decisionTTL)
	if err != nil {
		return authorizer.DecisionNoOpinion, reason, err
	}
	// Asking about all of them may have taken longer than an answer is believed.
	of := a.sets.Containing(allowed)(cluster)
	if of, _, err = a.lists.filter(limited, of, questionsOfSets(u, want, decisionTTL)); err != nil {
		return authorizer.DecisionNoOpinion, reason, err
	}
	if len(of) > 0 {
		return authorizer.DecisionAllow, fmt.Sprintf("allowed for ManagedClusterSet %q", of[0]), nil
	}
	return decision, reason, nil
}

// MayReach reports whether a user has a right to a cluster.
func (a *Authorizer) MayReach(ctx context.Context, u user.Info, right Right, cluster string) bool {
	decision, _, err := a.AuthorizeCluster(ctx, u, right, cluster)
	return decision == authorizer.DecisionAllow && err == nil
}

// Reachable returns those of the clusters for which a user has all the rights, sorted. The hub
// said so of each of them within 5 s, unless the list is late: the hub needs longer to say it of
// all of them. A cluster for which the user was given the right may be missing for longer (see
// longDenialTTL). If the error is ErrUnfinished, the next try goes on.
func (a *Authorizer) Reachable(ctx context.Context, u user.Info, rights []Right, clusters []string) (names []string, late bool, err error) {
	ctx, cancel := withListTimeout(ctx)
	defer cancel()
	names, asked, err := a.withRights(ctx, u, rights, clusters, decisionTTL)
	if err != nil || time.Since(asked) <= decisionTTL {
		return names, false, err
	}
	// The first answers are old by now. The hub is asked about these clusters again if they are
	// so few that it helps.
	again, cancel := context.WithTimeout(ctx, decisionTTL)
	defer cancel()
	if confirmed, at, err := a.withRights(again, u, rights, names, decisionTTL/2); err == nil {
		names, asked = confirmed, at
	}
	return names, time.Since(asked) > decisionTTL, nil
}

// withRights returns the names for which a user has all the rights, sorted, and when the hub
// was first asked about one of them.
func (a *Authorizer) withRights(ctx context.Context, u user.Info, rights []Right, names []string, grantTTL time.Duration) (_ []string, asked time.Time, err error) {
	asked = time.Now()
	for _, right := range rights {
		var at time.Time
		if names, at, err = a.withRight(ctx, u, right, names, grantTTL); err != nil {
			return nil, time.Time{}, err
		}
		asked = earlier(asked, at)
	}
	return names, asked, nil
}

// withRight asks the hub about all clusters at once; if that is denied, about the sets;
// and then about each cluster that is left. All at once have the name "", as in Kubernetes' own lists: a
// role with resourceNames [""], which an administrator must write, is for all of them here.
func (a *Authorizer) withRight(ctx context.Context, u user.Info, right Right, names []string, grantTTL time.Duration) ([]string, time.Time, error) {
	q := questionsOf(u, grantTTL, func(name string) authorizer.Attributes { return right.OfCluster(u, name) })
	every, asked, err := a.lists.filter(ctx, []string{""}, q)
	if err != nil || len(every) > 0 {
		return slices.Sorted(slices.Values(names)), asked, err
	}
	sets, askedSets, err := a.allowedSets(ctx, u, right, grantTTL)
	if err != nil {
		return nil, time.Time{}, err
	}
	var bySet, byName []string
	containing := a.sets.Containing(sets)
	for _, name := range names {
		if len(containing(name)) > 0 {
			bySet = append(bySet, name)
		} else {
			byName = append(byName, name)
		}
	}
	if len(byName) > longList {
		q.denialTTL = longDenialTTL
	}
	byName, asked, err = a.lists.filter(ctx, byName, q)
	if err != nil {
		return nil, time.Time{}, err
	}
	return slices.Sorted(slices.Values(append(bySet, byName...))), earlier(asked, askedSets), nil
}

// allowedSets are the ManagedClusterSets for whose clusters a user has a right, sorted, and
// when the hub was first asked about one of them.
func (a *Authorizer) allowedSets(ctx context.Context, u user.Info, right Right, grantTTL time.Duration) ([]string, time.Time, error) {
	sets, err := a.sets.Sets()
	if err != nil {
		return nil, time.Time{}, err
	}
	slices.Sort(sets)
	return a.lists.filter(ctx, sets, questionsOfSets(u, right, grantTTL))
}

// questionsOfSets are questions about sets.
func questionsOfSets(u user.Info, right Right, grantTTL time.Duration) questions {
	return questionsOf(u, grantTTL, func(set string) authorizer.Attributes { return right.ofSet(u, set) })
}

// UsableViews returns those of the views that a user may use, sorted, if the user may
// list views at all; ok is false if not. The answer may be 5 s old.
func (a *Authorizer) UsableViews(ctx context.Context, u user.Info, views []string) (usable []string, ok bool, err error) {
	decision, _, err := a.Authorize(ctx, ViewAttributes(u, "list", ""))
	if decision != authorizer.DecisionAllow || err != nil {
		return nil, false, err
	}
	ctx, cancel := withListTimeout(ctx)
	defer cancel()
	names := slices.Sorted(slices.Values(views))
	usable, _, err = a.lists.filter(ctx, names, questionsOf(u, decisionTTL, func(view string) authorizer.Attributes { return ViewAttributes(u, "get", view) }))
	return usable, err == nil, err
}
