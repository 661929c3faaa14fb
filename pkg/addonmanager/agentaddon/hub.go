package agentaddon

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
)

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
func (a *Addon) recognizeHub(ctx context.Context, v *values, cluster *clusterv1.ManagedCluster, addon *addonv1alpha1.ManagedClusterAddOn, namespace string) error {
	v.ManagedClusterUID = string(cluster.UID)
	var since time.Time
	if applied := meta.FindStatusCondition(addon.Status.Conditions, addonv1alpha1.ManagedClusterAddOnManifestApplied); applied != nil {
		since = applied.LastTransitionTime.Add(time.Second) // which it is rounded to
	}
	uid, err := a.hubRoles.find(ctx, a.Hub, impersonatorPrefix+namespace, since)
	if err != nil {
		return fmt.Errorf("finding out whether cluster %q is the hub: %w", cluster.Name, err)
	}
	if cluster.UID == "" || uid != string(cluster.UID) {
		return nil
	}
	v.OnHub = true
	v.Args = append(v.Args, "--on-hub=true")
	return nil
}
