package agentaddon

import (
	"context"
	"fmt"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
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

// hubRoleFor is how long an answer about a ClusterRole of the hub is believed.
const hubRoleFor = time.Minute

// hubRoles remembers for which cluster an agent's ClusterRole on the hub was rendered. All
// clusters ask about the same one, each time their manifests are made.
type hubRoles struct {
	mu    sync.Mutex
	known map[string]hubRole
}

type hubRole struct {
	uid   string // of the ManagedCluster; empty if there is no such role
	asked time.Time
}

// find returns the UID of the ManagedCluster that a ClusterRole was rendered for, as it was after
// since: an older answer is from before the manifests of the cluster that asks were applied.
func (h *hubRoles) find(ctx context.Context, hub client.Reader, name string, since time.Time) (uid string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if role, ok := h.known[name]; ok && role.asked.After(since) && now.Sub(role.asked) < hubRoleFor {
		return role.uid, nil
	}
	var role rbacv1.ClusterRole
	err = hub.Get(ctx, client.ObjectKey{Name: name}, &role)
	if client.IgnoreNotFound(err) != nil { // a refusal says nothing either: a kube-apiserver that has just started refuses everybody
		return "", err
	}
	if h.known == nil {
		h.known = map[string]hubRole{}
	}
	h.known[name] = hubRole{role.Annotations[clusterAnnotation], now}
	return h.known[name].uid, nil
}
