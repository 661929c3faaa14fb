package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of every kind of this package.
var GroupVersion = schema.GroupVersion{Group: "clusterproxy.open-cluster-management.io", Version: "v1alpha1"}

// Resource is the plural of Cluster, and these are what is below a cluster.
const (
	Resource = "clusters"
	// ProxySubresource is a cluster's own API. The right to it is asked for with
	// the verb of the request to that API.
	ProxySubresource = "proxy"
	// StreamSubresource is the right (create) to requests that leave HTTP or
	// the Kubernetes API: exec, attach, port-forward, Services.
	StreamSubresource = "stream"
	// IdentitySubresource says who the caller is on the cluster.
	IdentitySubresource = "identity"
	// SearchSubresource is a search in a FleetView, by GET with the parameters q, limit, continue and countBy.
	SearchSubresource = "search"
	// MetricsSubresource is the metrics of the cluster's agent, one of them. The right to
	// it is get, and no other right implies it.
	MetricsSubresource = "metrics"
	// TargetsSubresource lists, below AllClusters, what of all clusters the caller's Prometheus may
	// scrape, for its http_sd.
	TargetsSubresource = "targets"
	// AllClusters is in the place of a cluster's name. No cluster has it.
	AllClusters = "-"
)

// Sessions is the plural of Session.
const Sessions = "sessions"

// AddToScheme registers the kinds of this package. They have one version, which
// is the internal one too.
func AddToScheme(scheme *runtime.Scheme) error {
	internal := schema.GroupVersion{Group: GroupVersion.Group, Version: runtime.APIVersionInternal}
	kinds := []runtime.Object{&Cluster{}, &ClusterList{}, &ClusterIdentity{}, &Session{}, &SessionList{}}
	scheme.AddKnownTypes(GroupVersion, kinds...)
	scheme.AddKnownTypes(internal, kinds...)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return scheme.SetVersionPriority(GroupVersion)
}
