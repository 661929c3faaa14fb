package scope

import (
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/accesspolicy"
	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
)

// AnnotationPrefix begins the annotations of audit events.
const AnnotationPrefix = hubaccess.AnnotationPrefix

// Clusters is what the hub knows about managed clusters, for requests.
type Clusters interface {
	agentclient.Admission
	// Synced is an error until the hub's answer is complete.
	Synced() error
	// AwaySince is when the addon of that cluster stopped being available; zero if
	// it is available or that is not known.
	AwaySince(cluster string) time.Time
	// Names are those of the served clusters, in no order.
	Names() []string
	// Describe says of a served cluster what its objects on the hub say.
	Describe(cluster string) v1alpha1.Cluster
	// Place is where a cluster says that it is; empty if it does not say so.
	Place(cluster string) (provider, region string)
	// UID tells a served cluster from an earlier one of the same name.
	UID(cluster string) string
	// ClusterSet is the ManagedClusterSet that a cluster has joined.
	ClusterSet(cluster string) string
}

// Views is what the hub knows about fleet views.
type Views interface {
	// Get returns nil if there is no such view; the error means that this is not known.
	Get(name string) (*proxyv1alpha1.FleetView, error)
	// Names are those of all views, in no order.
	Names() []string
	// Clusters are the served clusters of a view, sorted. The error says why the
	// view is not valid.
	Clusters(view *proxyv1alpha1.FleetView) ([]string, error)
	// InSet reports whether a cluster is in a ManagedClusterSet. The error means that this is not
	// known.
	InSet(cluster, set string) (bool, error)
}

// Policies is what the hub knows about AccessPolicies.
type Policies interface {
	// Set is all policies. The error means that they are not known yet.
	Set() (*accesspolicy.Set, error)
	// Cluster is what policies may read of a cluster.
	Cluster(name string) accesspolicy.Cluster
}

// Definition is what a view is made of.
type Definition interface {
	// Clusters are those of the view as it is now, sorted, whether they are served or not.
	Clusters() ([]string, error)
	// Describe says what the view has of them.
	Describe(view *fleet.View) error
	// Indexed reports whether the fleet index is to answer lists.
	Indexed() bool
	// Changed reports whether the view is defined otherwise now.
	Changed() bool
}
