package addonmanager

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/leftovers"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/proxyconfig"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// addLeftovers removes what upstream left on the hub as soon as nothing of upstream's
// serves any more.
func addLeftovers(mgr ctrl.Manager, namespace string) error {
	hub, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return fmt.Errorf("preparing a client of the hub: %w", err)
	}
	remover := &leftovers.Remover{
		Hub: hub, Namespace: namespace, Clusters: clustersWithAddon(mgr.GetClient()),
		Moving: func(ctx context.Context) (bool, error) {
			var configuration v1alpha1.ManagedProxyConfiguration
			if err := hub.Get(ctx, client.ObjectKey{Name: identity.AddonName}, &configuration); err != nil {
				return true, client.IgnoreNotFound(err)
			}
			normal, err := proxyconfig.Normalize(&configuration)
			if err != nil {
				return true, nil // the condition ConfigurationValid says why
			}
			return proxyconfig.Moving(ctx, hub, normal)
		},
	}
	return mgr.Add(manager.RunnableFunc(remover.Run))
}
