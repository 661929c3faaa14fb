package proxyapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	addonclient "open-cluster-management.io/api/client/addon/clientset/versioned"
	addoninformers "open-cluster-management.io/api/client/addon/informers/externalversions"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

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
}

// watchedClusters watches the hub. It needs list and watch on managedclusters
// and managedclusteraddons, and keeps names and one condition of each.
type watchedClusters struct {
	clusters, addons cache.SharedIndexInformer
}

// newWatchedClusters calls gone with the name of every cluster that vanishes.
func newWatchedClusters(config *rest.Config, gone func(cluster string)) (*watchedClusters, error) {
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the hub: %w", err)
	}
	addonClient, err := addonclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the hub: %w", err)
	}
	w := &watchedClusters{
		clusters: metadatainformer.NewSharedInformerFactory(metadataClient, 0).
			ForResource(clusterv1.SchemeGroupVersion.WithResource("managedclusters")).Informer(),
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
	case *metav1.PartialObjectMetadata:
		o.ObjectMeta = metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
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
	obj, exists, err := w.addons.GetStore().GetByKey(cluster + "/" + identity.AddonName)
	if !exists || err != nil {
		return time.Time{}
	}
	addon, ok := obj.(*addonv1alpha1.ManagedClusterAddOn)
	if !ok {
		return time.Time{}
	}
	condition := meta.FindStatusCondition(addon.Status.Conditions, addonv1alpha1.ManagedClusterAddOnConditionAvailable)
	if condition == nil || condition.Status == metav1.ConditionTrue {
		return time.Time{}
	}
	return condition.LastTransitionTime.Time
}
