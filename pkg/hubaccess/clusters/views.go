package clusters

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	clusterclient "open-cluster-management.io/api/client/cluster/clientset/versioned"
	clusterinformers "open-cluster-management.io/api/client/cluster/informers/externalversions"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// Views watches the hub's FleetViews and ManagedClusterSets. A hub may have neither:
// then there are no views and no sets, and they are looked for again at times. Methods
// are safe for concurrent use once Run was called.
type Views struct {
	clusters    *Clusters
	views, sets *optional
}

// NewViews does no I/O. Views select from the served clusters.
func NewViews(config *rest.Config, clusters *Clusters) (*Views, error) {
	client, err := clusterclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the hub: %w", err)
	}
	listed, err := listWatch(config, "fleetviews")
	if err != nil {
		return nil, fmt.Errorf("making a client for the hub: %w", err)
	}
	v := &Views{clusters: clusters}
	if v.views, err = watchOptional("FleetViews", cache.NewSharedIndexInformer(listed, &v1alpha1.FleetView{}, 0, nil)); err != nil {
		return nil, err
	}
	v.sets, err = watchOptional("ManagedClusterSets", clusterinformers.NewSharedInformerFactory(client, 0).Cluster().V1beta2().ManagedClusterSets().Informer())
	return v, err
}

// listWatch lists and watches objects of the addon, for which there is no generated client.
func listWatch(config *rest.Config, resource string) (*cache.ListWatch, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &v1alpha1.GroupVersion
	config.ContentConfig.ContentType = runtime.ContentTypeJSON // custom resources have no other
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything()), nil
}

// optional watches a kind that the hub may not have.
type optional struct {
	what     string
	informer cache.SharedIndexInformer
	// lacking says that the hub does not have the kind.
	lacking atomic.Bool
}

func watchOptional(what string, informer cache.SharedIndexInformer) (*optional, error) {
	o := &optional{what: what, informer: informer}
	if err := informer.SetTransform(slimView); err != nil {
		return nil, fmt.Errorf("preparing the watch of %s: %w", what, err)
	}
	if err := informer.SetWatchErrorHandlerWithContext(o.failed); err != nil {
		return nil, fmt.Errorf("preparing the watch of %s: %w", what, err)
	}
	return o, nil
}

// failed is called whenever the hub could not be asked. The informer asks again, less and
// less often. A refusal says nothing about the kind: a kube-apiserver that has just started
// refuses everybody, until it has read its roles.
func (o *optional) failed(ctx context.Context, r *cache.Reflector, err error) {
	if !apierrors.IsNotFound(err) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		return
	}
	if !o.lacking.Swap(true) {
		klog.FromContext(ctx).Info("The hub has none of a kind that views or policies need, which is looked for again at times", "kind", o.what)
	}
}

// synced returns an error until it is known what the hub has of the kind, if anything.
func (o *optional) synced() error {
	if o.informer.HasSynced() || o.lacking.Load() {
		return nil
	}
	return fmt.Errorf("the list of %s has not been read from the hub yet", o.what)
}

// slimView drops what is not used.
func slimView(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
		o.SetAnnotations(nil)
	}
	switch o := obj.(type) {
	case *v1alpha1.FleetView:
		o.Status = v1alpha1.FleetViewStatus{}
	case *v1alpha1.AccessPolicy:
		o.Status = v1alpha1.AccessPolicyStatus{}
	case *v1alpha1.KarmadaResourceRegistry:
		o.Status = v1alpha1.ResourceRegistryStatus{}
	case *clusterv1beta2.ManagedClusterSet:
		o.Status = clusterv1beta2.ManagedClusterSetStatus{}
	}
	return obj, nil
}

// Run watches until ctx is done.
func (v *Views) Run(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() { v.views.informer.RunWithContext(ctx) })
	both.Go(func() { v.sets.informer.RunWithContext(ctx) })
	both.Wait()
	return nil
}

// Get returns a view, which the caller must not change; nil if there is none of that
// name. The error means that the views are not known yet.
func (v *Views) Get(name string) (*v1alpha1.FleetView, error) {
	obj, _, _ := v.views.informer.GetStore().GetByKey(name)
	view, _ := obj.(*v1alpha1.FleetView)
	return view, v.views.synced()
}

// Names are those of all views, in no order.
func (v *Views) Names() []string { return v.views.informer.GetStore().ListKeys() }

// Sets are the names of all ManagedClusterSets, in no order. The error means that they
// are not known yet.
func (v *Views) Sets() ([]string, error) {
	return v.sets.informer.GetStore().ListKeys(), v.sets.synced()
}

// Clusters are the served clusters of a view, sorted. The error says which selector of the
// view cannot be read, or that it is not known yet whether there is a set of the view. The
// view's status has no say: it is written later, by another
// process, which may not run.
func (v *Views) Clusters(view *v1alpha1.FleetView) ([]string, error) {
	notYet := v.sets.synced() // before the sets are looked at
	selection, err := NewSelection(&view.Spec.Clusters, v.set)
	if err == nil && len(selection.MissingSets()) > 0 {
		err = notYet
	}
	if err != nil {
		return nil, err
	}
	return selection.Of(func(yield func(string, map[string]string) bool) {
		for _, name := range v.clusters.Names() {
			if cluster := v.clusters.cluster(name); cluster != nil && !yield(name, cluster.Labels) {
				return
			}
		}
	}), nil
}

func (v *Views) set(name string) *clusterv1beta2.ManagedClusterSet {
	obj, _, _ := v.sets.informer.GetStore().GetByKey(name)
	set, _ := obj.(*clusterv1beta2.ManagedClusterSet)
	return set
}

// InSet reports whether a cluster is in a ManagedClusterSet. The error means that this is not known:
// the hub has not been asked yet, it has no such set or cluster, or the set's selector means nothing.
func (v *Views) InSet(cluster, name string) (bool, error) {
	if err := v.sets.synced(); err != nil {
		return false, err
	}
	set := v.set(name)
	if set == nil {
		return false, fmt.Errorf("there is no ManagedClusterSet %q", name)
	}
	selector, err := setSelector(set)
	if err != nil {
		return false, err
	}
	managed := v.clusters.cluster(cluster)
	if managed == nil {
		return false, fmt.Errorf("there is no ManagedCluster %q", cluster)
	}
	return selector.Matches(labels.Set(managed.Labels)), nil
}

// Containing returns what names those of the ManagedClusterSets that a cluster is in, in their
// order. It reads the sets' selectors once for all clusters.
func (v *Views) Containing(sets []string) func(cluster string) []string {
	selectors := selectorsOf(sets, v.set)
	return func(cluster string) []string {
		managed := v.clusters.cluster(cluster)
		if managed == nil || len(selectors) == 0 {
			return nil
		}
		return setsOf(selectors, managed.Labels)
	}
}
