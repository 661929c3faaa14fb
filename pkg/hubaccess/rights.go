package hubaccess

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

const (
	// setsResource has the subresources of clusters, for all clusters of a
	// ManagedClusterSet.
	setsResource = "clustersets"
	// viewsResource are FleetViews.
	viewsResource = "fleetviews"
)

// Right is what a user may do with a cluster: send requests with a verb to its API, or
// (Streams) send requests that leave the Kubernetes API, or (AgentMetrics) read the
// metrics of its agents.
type Right struct {
	Verb string
	// subresource of the cluster; empty means its API.
	subresource string
	// group is the API group that has the resources; empty means the addon's own.
	group string
}

// Streams is the right to requests that leave the Kubernetes API.
var Streams = Right{Verb: "create", subresource: v1alpha1.StreamSubresource}

// AgentMetrics is the right to the metrics of a cluster's agents.
var AgentMetrics = Right{Verb: "get", subresource: v1alpha1.MetricsSubresource}

// In returns the same right in another API group, whose resources have the same names. A
// right in one group is none in another.
func (r Right) In(group string) Right {
	r.group = group
	return r
}

// OfCluster asks whether a user has the right to one cluster; the empty name means every
// cluster.
func (r Right) OfCluster(u user.Info, cluster string) authorizer.Attributes {
	return r.of(u, v1alpha1.Resource, cluster)
}

// ofSet asks about the clusters of a ManagedClusterSet.
func (r Right) ofSet(u user.Info, set string) authorizer.Attributes {
	return r.of(u, setsResource, set)
}

func (r Right) of(u user.Info, resource, name string) authorizer.Attributes {
	subresource := cmp.Or(r.subresource, v1alpha1.ProxySubresource)
	gv := v1alpha1.GroupVersion
	if r.group != "" {
		gv.Group = r.group
	}
	return authorizer.AttributesRecord{
		User: u, Verb: r.Verb, ResourceRequest: true, APIGroup: gv.Group, APIVersion: gv.Version,
		Resource: resource, Subresource: subresource, Name: name,
		Path: "/apis/" + gv.String() + "/" + resource + "/" + name + "/" + subresource,
	}
}

// ViewAttributes ask whether a user has a right to a FleetView; the empty name means
// every view.
func ViewAttributes(u user.Info, verb, view string) authorizer.Attributes {
	return authorizer.AttributesRecord{
		User: u, Verb: verb, ResourceRequest: true, APIGroup: proxyv1alpha1.GroupVersion.Group, APIVersion: proxyv1alpha1.GroupVersion.Version,
		Resource: viewsResource, Name: view, Path: "/apis/" + proxyv1alpha1.GroupVersion.String() + "/" + viewsResource + "/" + view,
	}
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
		fmt.Fprintf(sum, " %x", keyOf(right.OfCluster(u, "")))
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
	made, err := a.lists.once(ctx, keyOf(right.ofSet(u, "")), u.GetName(), func(ctx context.Context) (madeList, error) { return a.askSets(ctx, u, right, listTTL) })
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
	made, err := a.lists.once(ctx, keyOf(ViewAttributes(u, "get", "")), u.GetName(), func(ctx context.Context) (madeList, error) {
		names := views()
		slices.Sort(names)
		return a.lists.filter(ctx, names, questionsOf(u, func(view string) authorizer.Attributes { return ViewAttributes(u, "get", view) }))
	})
	return made.names, err == nil, err
}
