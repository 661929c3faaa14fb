package addonmanager

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// addRerender asks for the manifests of every cluster to be rendered again when
// what they are made of changes: a configuration, an address of a Service, the
// hub CA's bundle, the list of exposed Services, or the agent CA, which is in
// what agents ask for.
func addRerender(mgr ctrl.Manager, exposedServices string, trigger func(cluster, addon string)) error {
	reader := mgr.GetClient()
	everyCluster := func(concerns func(client.Object) bool) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
			if !concerns(object) {
				return nil
			}
			var addons addonv1alpha1.ManagedClusterAddOnList
			if err := reader.List(ctx, &addons); err != nil {
				return nil // the cache is not filled yet; everything is rendered after that anyway
			}
			var requests []reconcile.Request
			for _, addon := range addons.Items {
				if addon.Name == identity.AddonName {
					requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&addon)})
				}
			}
			return requests
		})
	}
	return ctrl.NewControllerManagedBy(mgr).Named("rerender").
		Watches(&v1alpha1.ManagedProxyConfiguration{}, everyCluster(func(client.Object) bool { return true })).
		Watches(&corev1.Service{}, everyCluster(func(object client.Object) bool {
			service, ok := object.(*corev1.Service)
			return ok && service.Spec.Type == corev1.ServiceTypeLoadBalancer
		})).
		Watches(&corev1.Secret{}, everyCluster(func(object client.Object) bool {
			return object.GetName() == certificates.HubBundleSecret || object.GetName() == certificates.AgentSignerSecret
		})).
		Watches(&corev1.ConfigMap{}, everyCluster(func(object client.Object) bool { return object.GetName() == exposedServices })).
		Complete(reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
			trigger(request.Namespace, request.Name)
			return reconcile.Result{}, nil
		}))
}

// clustersWithAddon are the clusters whose agents are to go on working.
func clustersWithAddon(reader client.Reader) func(ctx context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		var addons addonv1alpha1.ManagedClusterAddOnList
		if err := reader.List(ctx, &addons); err != nil {
			return nil, err
		}
		var clusters []string
		for _, addon := range addons.Items {
			if addon.Name == identity.AddonName && addon.DeletionTimestamp == nil {
				clusters = append(clusters, addon.Namespace)
			}
		}
		return clusters, nil
	}
}
