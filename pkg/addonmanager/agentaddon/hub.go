package agentaddon

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clusterAnnotation is on the agent's ClusterRole: the UID of the ManagedCluster
// whose agent it is.
const clusterAnnotation = "proxy.open-cluster-management.io/managed-cluster-uid"

// impersonatorPrefix and the agent's namespace make the name of that ClusterRole.
const impersonatorPrefix = "open-cluster-management:cluster-proxy:impersonator:"

// recognizeHub finds out whether a cluster is the hub itself: an object that was
// rendered for that cluster alone then exists on the hub. Anyone else who could put it
// there may write ClusterRoles of the hub, and has no need to. Labels and claims of a
// ManagedCluster are no proof: a cluster, and others, may write them. The UID tells the
// ManagedCluster from one of the same name on another hub, of which this hub may be a
// managed cluster.
//
// The agent therefore first starts as on any cluster. When OCM reports that its
// manifests are applied, they are rendered again.
func (a *Addon) recognizeHub(ctx context.Context, v *values, cluster *clusterv1.ManagedCluster, namespace string) error {
	v.ManagedClusterUID = string(cluster.UID)
	var role rbacv1.ClusterRole
	err := a.Hub.Get(ctx, client.ObjectKey{Name: impersonatorPrefix + namespace}, &role)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // one that may not ask takes no cluster for the hub
		return nil
	case err != nil:
		return fmt.Errorf("finding out whether cluster %q is the hub: %w", cluster.Name, err)
	case cluster.UID == "" || role.Annotations[clusterAnnotation] != string(cluster.UID):
		return nil
	}
	v.OnHub = true
	v.Args = append(v.Args, "--on-hub=true")
	return nil
}
