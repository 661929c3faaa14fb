package proxyapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	addonclient "open-cluster-management.io/api/client/addon/clientset/versioned"
	addoninformers "open-cluster-management.io/api/client/addon/informers/externalversions"
	clusterclient "open-cluster-management.io/api/client/cluster/clientset/versioned"
	clusterinformers "open-cluster-management.io/api/client/cluster/informers/externalversions"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// clusters is what the hub knows about managed clusters, for requests.
type clusters interface {
	// synced is an error until the hub's answer is complete.
	synced() error
	// known reports whether there is a ManagedCluster of that name.
	known(cluster string) bool
	// awaySince is when the addon of that cluster stopped being available;
	// zero if it is available or nobody knows.
	awaySince(cluster string) time.Time
	// names are those of all managed clusters, in no order. The caller may
	// change what it gets.
	names() []string
	// describe says of a known cluster what its objects on the hub say.
	describe(cluster string) v1alpha1.Cluster
}

// watchedClusters watches the hub. It needs list and watch on managedclusters
// and managedclusteraddons, and keeps names and one condition of each.
type watchedClusters struct {
	clusters, addons cache.SharedIndexInformer
}

// newWatchedClusters calls gone with the name of every cluster that vanishes.
func newWatchedClusters(config *rest.Config, gone func(cluster string)) (*watchedClusters, error) {
	clusterClient, err := clusterclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the hub: %w", err)
	}
	addonClient, err := addonclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the hub: %w", err)
	}
	w := &watchedClusters{
		clusters: clusterinformers.NewSharedInformerFactory(clusterClient, 0).Cluster().V1().ManagedClusters().Informer(),
		addons: addoninformers.NewSharedInformerFactoryWithOptions(addonClient, 0,
			addoninformers.WithTweakListOptions(func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector("metadata.name", identity.AddonName).String()
			})).Addon().V1alpha1().ManagedClusterAddOns().Informer(),
	}
	for _, informer := range []cache.SharedIndexInformer{w.clusters, w.addons} {
		if err := informer.SetTransform(slim); err != nil {
			return nil, fmt.Errorf("preparing the watch of clusters: %w", err)
		}
	}
	_, err = w.clusters.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			gone(key)
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("preparing the watch of clusters: %w", err)
	}
	return w, nil
}

// slim drops what nobody asks for, so that a thousand clusters cost little.
func slim(obj any) (any, error) {
	switch o := obj.(type) {
	case *clusterv1.ManagedCluster:
		o.ObjectMeta = metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: o.Labels, CreationTimestamp: o.CreationTimestamp}
		o.Spec = clusterv1.ManagedClusterSpec{}
		o.Status = clusterv1.ManagedClusterStatus{Version: o.Status.Version}
	case *addonv1alpha1.ManagedClusterAddOn:
		o.ObjectMeta = metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion}
		o.Spec = addonv1alpha1.ManagedClusterAddOnSpec{}
		o.Status = addonv1alpha1.ManagedClusterAddOnStatus{Conditions: o.Status.Conditions}
	}
	return obj, nil
}

// run watches until ctx is done.
func (w *watchedClusters) run(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.addons.RunWithContext(ctx)
	}()
	w.clusters.RunWithContext(ctx)
	<-done
	return nil
}

func (w *watchedClusters) synced() error {
	if !w.clusters.HasSynced() {
		return errors.New("the list of managed clusters has not been read from the hub yet")
	}
	return nil
}

func (w *watchedClusters) known(cluster string) bool {
	_, exists, err := w.clusters.GetStore().GetByKey(cluster)
	return exists && err == nil
}

func (w *watchedClusters) awaySince(cluster string) time.Time {
	condition := w.available(cluster)
	if condition == nil || condition.Status == metav1.ConditionTrue {
		return time.Time{}
	}
	return condition.LastTransitionTime.Time
}

// available is the addon's condition of that name, or nil.
func (w *watchedClusters) available(cluster string) *metav1.Condition {
	obj, exists, err := w.addons.GetStore().GetByKey(cluster + "/" + identity.AddonName)
	if !exists || err != nil {
		return nil
	}
	addon, ok := obj.(*addonv1alpha1.ManagedClusterAddOn)
	if !ok {
		return nil
	}
	return meta.FindStatusCondition(addon.Status.Conditions, addonv1alpha1.ManagedClusterAddOnConditionAvailable)
}

func (w *watchedClusters) names() []string { return w.clusters.GetStore().ListKeys() }

func (w *watchedClusters) describe(cluster string) v1alpha1.Cluster {
	described := v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	described.Status.Available = metav1.ConditionUnknown
	if obj, exists, err := w.clusters.GetStore().GetByKey(cluster); exists && err == nil {
		if c, ok := obj.(*clusterv1.ManagedCluster); ok {
			described.ObjectMeta = *c.ObjectMeta.DeepCopy()
			described.Status.Version = c.Status.Version.Kubernetes
		}
	}
	if condition := w.available(cluster); condition != nil {
		described.Status.Available = condition.Status
		seen := condition.LastTransitionTime
		if condition.Status == metav1.ConditionTrue {
			seen = metav1.Now()
		}
		described.Status.LastSeen = &seen
	}
	return described
}
