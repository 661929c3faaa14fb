package hubaccess

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

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

// Reachable returns those of the clusters for which a user has all the rights, sorted.
// of names the clusters: answers are kept for it, and may be 5 s old. The caller must
// not change the answer.
func (a *Authorizer) Reachable(ctx context.Context, u user.Info, rights []Right, of string, clusters func() []string) ([]string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q", of)
	for _, right := range rights {
		fmt.Fprintf(sum, " %x", keyOf(right.OfCluster(u, "")))
	}
	return a.lists.once(ctx, [sha256.Size]byte(sum.Sum(nil)), func(ctx context.Context) ([]string, error) {
		names := clusters()
		slices.Sort(names)
		for _, right := range rights {
			var err error
			if names, err = a.withRight(ctx, u, right, names); err != nil {
				return nil, err
			}
		}
		return names, nil
	})
}

// withRight asks the hub about all clusters at once; if that is denied, about the sets;
// and then about each cluster that is left.
func (a *Authorizer) withRight(ctx context.Context, u user.Info, right Right, names []string) ([]string, error) {
	if all, err := a.lists.may(ctx, right.OfCluster(u, "")); all || err != nil {
		return names, err
	}
	// Asked now: an older answer in this one would live for longer than 5 s.
	sets, err := a.askSets(ctx, u, right)
	if err != nil {
		return nil, err
	}
	return a.lists.filter(ctx, names, func(name string) (authorizer.Attributes, bool) {
		if len(sets) > 0 {
			if _, ok := firstIn(sets, a.sets.SetsOf(name)); ok {
				return nil, true
			}
		}
		return right.OfCluster(u, name), false
	})
}

// allowedSets are the ManagedClusterSets for whose clusters a user has a right, sorted.
// The answer may be 5 s old.
func (a *Authorizer) allowedSets(ctx context.Context, u user.Info, right Right) ([]string, error) {
	return a.lists.once(ctx, keyOf(right.ofSet(u, "")), func(ctx context.Context) ([]string, error) { return a.askSets(ctx, u, right) })
}

func (a *Authorizer) askSets(ctx context.Context, u user.Info, right Right) ([]string, error) {
	sets, err := a.sets.Sets()
	if err != nil {
		return nil, err
	}
	slices.Sort(sets)
	return a.lists.filter(ctx, sets, func(set string) (authorizer.Attributes, bool) { return right.ofSet(u, set), false })
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
	usable, err = a.lists.once(ctx, keyOf(ViewAttributes(u, "get", "")), func(ctx context.Context) ([]string, error) {
		names := views()
		slices.Sort(names)
		return a.lists.filter(ctx, names, func(view string) (authorizer.Attributes, bool) { return ViewAttributes(u, "get", view), false })
	})
	return usable, err == nil, err
}
