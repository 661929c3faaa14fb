package authz

import (
	"cmp"

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
