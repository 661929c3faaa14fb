//lint:file-ignore SA1019 Hubs before OCM 1.2 serve addon API v1alpha1 alone.

package agentaddon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"open-cluster-management.io/addon-framework/pkg/agent"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
)

// once renders a cluster's manifests once where they are asked for twice in a row.
// addon-framework does so each time it looks at a cluster: for what it installs, and for what
// it would run before it uninstalls. It looks at a few clusters at a time, so the last answers
// are enough. Rendering is most of what the addon manager does for a cluster.
//
// The inputs of manifests are read once for both the comparison and the rendering. If each read
// for itself, a Service's address that changes and changes back between the two would leave manifests
// of the one address remembered as those of the other, and nobody would render them again.
type once struct {
	agent.AgentAddon
	addon *Addon

	mu      sync.Mutex
	answers map[string]answer // by cluster
	order   []string          // of the clusters, the oldest answer first
}

// answer is what was rendered last for a cluster, and of what.
type answer struct {
	key     string
	objects []runtime.Object
}

// answersKept is more than the clusters that addon-framework looks at at a time.
const answersKept = 32

// Manifests returns objects that belong to the caller.
func (o *once) Manifests(cluster *clusterv1.ManagedCluster, addon *addonv1alpha1.ManagedClusterAddOn) ([]runtime.Object, error) {
	values, err := o.addon.makeValues(context.Background(), cluster, addon)
	if err != nil {
		return nil, err
	}
	if o.addon.Ignored != nil { // what is ignored changes no manifest
		o.addon.Ignored(context.Background(), addon, values.ignored)
	}
	key, err := keyOf(cluster, addon, values)
	if err != nil {
		return nil, err
	}
	last, ok := o.last(cluster.Name)
	if !ok || last.key != key {
		objects, err := o.render(cluster, addon, values)
		if err != nil {
			return nil, err
		}
		last = answer{key, objects}
		o.keep(cluster.Name, last)
	}
	copies := make([]runtime.Object, len(last.objects))
	for i, object := range last.objects {
		copies[i] = object.DeepCopyObject()
	}
	return copies, nil
}

func (o *once) last(cluster string) (last answer, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, ok = o.answers[cluster]
	return last, ok
}

func (o *once) keep(cluster string, a answer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.answers == nil {
		o.answers = map[string]answer{}
	}
	if _, ok := o.answers[cluster]; !ok {
		o.order = append(o.order, cluster)
	}
	o.answers[cluster] = a
	if len(o.order) > answersKept {
		delete(o.answers, o.order[0])
		o.order = slices.Delete(o.order, 0, 1)
	}
}

// render makes manifests of values. addon-framework hands the addon that it is given to the functions
// that it asks for values, which find them by it.
func (o *once) render(cluster *clusterv1.ManagedCluster, addon *addonv1alpha1.ManagedClusterAddOn, v *values) ([]runtime.Object, error) {
	rendered := addon.DeepCopy()
	o.addon.rendering.Store(rendered, v)
	defer o.addon.rendering.Delete(rendered)
	return o.AgentAddon.Manifests(cluster, rendered)
}

// keyOf is all that manifests are made of.
func keyOf(cluster *clusterv1.ManagedCluster, addon *addonv1alpha1.ManagedClusterAddOn, v *values) (string, error) {
	key, err := json.Marshal([]any{cluster.Name, cluster.Status.Version.Kubernetes, addon.Name, addon.Spec.InstallNamespace, v.namespace, v})
	if err != nil {
		return "", fmt.Errorf("comparing what manifests are made of: %w", err)
	}
	return string(key), nil
}
