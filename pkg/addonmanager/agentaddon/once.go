package agentaddon

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"open-cluster-management.io/addon-framework/pkg/agent"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
)

// once renders a cluster's manifests once where they are asked for twice in a row.
// addon-framework does so each time it looks at a cluster: for what it installs, and for what
// it would run before it uninstalls. It looks at one cluster at a time, so the last answer is
// enough. Rendering is most of what the addon manager does for a cluster.
type once struct {
	agent.AgentAddon
	values    func(context.Context, *clusterv1.ManagedCluster, *addonv1alpha1.ManagedClusterAddOn) (*values, error)
	namespace func(*addonv1alpha1.ManagedClusterAddOn) (string, error)

	mu      sync.Mutex
	key     string
	objects []runtime.Object
}

// Manifests returns objects that belong to the caller.
func (o *once) Manifests(cluster *clusterv1.ManagedCluster, addon *addonv1alpha1.ManagedClusterAddOn) ([]runtime.Object, error) {
	key, err := o.keyOf(cluster, addon)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if key != o.key {
		objects, err := o.AgentAddon.Manifests(cluster, addon)
		if err != nil {
			return nil, err
		}
		o.key, o.objects = key, objects
	}
	copies := make([]runtime.Object, len(o.objects))
	for i, object := range o.objects {
		copies[i] = object.DeepCopyObject()
	}
	return copies, nil
}

// keyOf is all that manifests are made of.
func (o *once) keyOf(cluster *clusterv1.ManagedCluster, addon *addonv1alpha1.ManagedClusterAddOn) (string, error) {
	values, err := o.values(context.Background(), cluster, addon)
	if err != nil {
		return "", err
	}
	namespace, err := o.namespace(addon)
	if err != nil {
		return "", err
	}
	key, err := json.Marshal([]any{cluster.Name, cluster.Status.Version.Kubernetes, addon.Name, addon.Spec.InstallNamespace, namespace, values})
	if err != nil {
		return "", fmt.Errorf("comparing what manifests are made of: %w", err)
	}
	return string(key), nil
}
