package addonmanager

import (
	"context"

	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	ctrlsource "sigs.k8s.io/controller-runtime/pkg/source"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/proxyconfig"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// rendersPerSecond paces what is asked for: the framework renders clusters in the
// order in which it was asked to, and a new cluster would wait behind all others.
const rendersPerSecond = 50

// source is objects that manifests are made of.
type source struct {
	kind client.Object
	// part is what manifests are made of, of an object that concerns them.
	part func(client.Object) (part any, concerns bool)
}

// sources are a configuration, an address of a Service, the hub CA's bundle, the
// agent CA, which is in what agents ask for, and the list of exposed Services.
func sources(exposedServices string) []source {
	return []source{
		{&v1alpha1.ManagedProxyConfiguration{}, func(object client.Object) (any, bool) { return object.GetGeneration(), true }},
		// Agents' manifests differ while upstream's proxy servers serve.
		{&appsv1.Deployment{}, func(object client.Object) (any, bool) {
			return object.(*appsv1.Deployment).Spec.MinReadySeconds, object.GetName() == identity.AddonName
		}},
		{&corev1.Service{}, func(object client.Object) (any, bool) {
			service := object.(*corev1.Service)
			return service.Status.LoadBalancer, service.Spec.Type == corev1.ServiceTypeLoadBalancer
		}},
		{&corev1.Secret{}, func(object client.Object) (any, bool) {
			name := object.GetName()
			return object.(*corev1.Secret).Data["ca.crt"], name == certificates.HubBundleSecret || name == certificates.AgentSignerSecret
		}},
		{&corev1.ConfigMap{}, func(object client.Object) (any, bool) {
			return object.(*corev1.ConfigMap).Data, object.GetName() == exposedServices
		}},
	}
}

// changes lets events through that change what manifests are made of. Objects that were there
// before this process are no changes: the framework renders every cluster when it starts, of
// the same cache, and it starts when everything is watched.
func (s source) changes() predicate.Predicate {
	concerns := func(object client.Object) bool {
		_, ok := s.part(object)
		return ok
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return !e.IsInInitialList && concerns(e.Object) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return concerns(e.Object) },
		GenericFunc: func(e event.GenericEvent) bool { return concerns(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, was := s.part(e.ObjectOld)
			now, is := s.part(e.ObjectNew)
			return (was || is) && (was != is || !equality.Semantic.DeepEqual(before, now))
		},
	}
}

// addRerender asks for the manifests of every cluster to be rendered again when
// what they are made of changes. It closes watching as soon as no change is missed.
func addRerender(mgr ctrl.Manager, exposedServices string, trigger func(cluster, addon string), watching chan<- struct{}) error {
	controller := ctrl.NewControllerManagedBy(mgr).Named("rerender")
	for _, s := range sources(exposedServices) {
		controller.Watches(s.kind, handler.EnqueueRequestsFromMapFunc(everyCluster(mgr.GetClient())), builder.WithPredicates(s.changes()))
	}
	// Requests are answered when all of the above are watched.
	var first reconcile.Request
	controller.WatchesRawSource(ctrlsource.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue.Add(first)
		return nil
	}))
	turns := rate.NewLimiter(rendersPerSecond, 1)
	return controller.Complete(reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		if request == first {
			close(watching)
			return reconcile.Result{}, nil
		}
		if err := turns.Wait(ctx); err != nil {
			return reconcile.Result{}, nil // the manager ends
		}
		trigger(request.Namespace, request.Name)
		return reconcile.Result{}, nil
	}))
}

// everyCluster are all clusters with the addon, whatever the object is.
func everyCluster(reader client.Reader) handler.MapFunc {
	clusters := clustersWithAddon(reader)
	return func(ctx context.Context, _ client.Object) []reconcile.Request {
		names, err := clusters(ctx)
		if err != nil {
			return nil // the cache is not filled yet; everything is rendered after that anyway
		}
		requests := make([]reconcile.Request, len(names))
		for i, name := range names {
			requests[i].NamespacedName = client.ObjectKey{Namespace: name, Name: identity.AddonName}
		}
		return requests
	}
}

// slim drops from an addon and a cluster what this process does not read.
func slim(object any) (any, error) {
	switch o := object.(type) {
	case *addonv1alpha1.ManagedClusterAddOn:
		o.ObjectMeta = metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID,
			ResourceVersion: o.ResourceVersion, DeletionTimestamp: o.DeletionTimestamp}
		o.Spec = addonv1alpha1.ManagedClusterAddOnSpec{}
		available := meta.FindStatusCondition(o.Status.Conditions, addonv1alpha1.ManagedClusterAddOnConditionAvailable)
		o.Status = addonv1alpha1.ManagedClusterAddOnStatus{Namespace: o.Status.Namespace, KubeClientDriver: o.Status.KubeClientDriver}
		if available != nil {
			o.Status.Conditions = []metav1.Condition{*available}
		}
	case *clusterv1.ManagedCluster:
		o.ObjectMeta = metav1.ObjectMeta{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: o.Labels,
			DeletionTimestamp: o.DeletionTimestamp}
		o.Spec = clusterv1.ManagedClusterSpec{HubAcceptsClient: o.Spec.HubAcceptsClient}
		o.Status = clusterv1.ManagedClusterStatus{}
	}
	return object, nil
}

// tokenDriver is what OCM's agent writes into an addon's status if it gives addons
// tokens of the hub, and not certificates.
const tokenDriver = "token"

// addonsOf are the clusters whose agents are to go on working.
func addonsOf(reader client.Reader) func(ctx context.Context) ([]proxyconfig.Cluster, error) {
	return func(ctx context.Context) ([]proxyconfig.Cluster, error) {
		var addons addonv1alpha1.ManagedClusterAddOnList
		if err := reader.List(ctx, &addons); err != nil {
			return nil, err
		}
		var clusters []proxyconfig.Cluster
		for _, addon := range addons.Items {
			if addon.Name == identity.AddonName && addon.DeletionTimestamp == nil {
				clusters = append(clusters, proxyconfig.Cluster{Name: addon.Namespace, Token: addon.Status.KubeClientDriver == tokenDriver})
			}
		}
		return clusters, nil
	}
}

// clustersWithAddon are their names.
func clustersWithAddon(reader client.Reader) func(ctx context.Context) ([]string, error) {
	addons := addonsOf(reader)
	return func(ctx context.Context) (names []string, err error) {
		clusters, err := addons(ctx)
		for _, cluster := range clusters {
			names = append(names, cluster.Name)
		}
		return names, err
	}
}
