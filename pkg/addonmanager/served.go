package addonmanager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	inventoryv1alpha1 "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/accesspolicy"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/clusterprofile"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/fleetview"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/karmada"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/leftovers"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/passes"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/proxyconfig"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// lateController is one of kinds that the hub may serve later than everything else works: Helm
// does not upgrade a CustomResourceDefinition that another release owns, and that of
// ClusterProfiles is not OCM's own.
type lateController struct {
	of         string
	reconciler interface {
		SetupWithManager(mgr ctrl.Manager) error
	}
	watched []schema.GroupVersionResource
}

// addLateControllers has each of them start when the hub serves what it watches.
func addLateControllers(mgr ctrl.Manager, o Options) error {
	hub, ours := mgr.GetClient(), v1alpha1.GroupVersion.WithResource
	controllers := []lateController{
		{"fleet views", &fleetview.Reconciler{Client: hub}, []schema.GroupVersionResource{ours("fleetviews"), schema.GroupVersion(clusterv1beta2.GroupVersion).WithResource("managedclustersets")}},
		{"ResourceRegistries", &karmada.Reconciler{Client: hub}, []schema.GroupVersionResource{ours("karmadaresourceregistries")}},
		{"access policies", &accesspolicy.Reconciler{Client: hub}, []schema.GroupVersionResource{ours("accesspolicies"), schema.GroupVersion(clusterv1beta2.GroupVersion).WithResource("managedclustersets")}},
		{"passes", &passes.Reconciler{Client: hub}, []schema.GroupVersionResource{ours("passes")}},
	}
	if o.FeatureGates[ClusterProfile] {
		controllers = append(controllers, lateController{"cluster profiles", &clusterprofile.Reconciler{Client: hub, Namespace: o.Namespace, Server: o.ProxyAPIURL},
			[]schema.GroupVersionResource{inventoryv1alpha1.GroupVersion.WithResource("clusterprofiles")}})
	}
	for _, c := range controllers {
		err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			if err := waitForResources(ctx, mgr.GetConfig(), c.watched...); err != nil {
				return nil // the manager ends
			}
			if err := c.reconciler.SetupWithManager(mgr); err != nil {
				return fmt.Errorf("starting the controller of %s: %w", c.of, err)
			}
			return nil
		}))
		if err != nil {
			return fmt.Errorf("adding the controller of %s: %w", c.of, err)
		}
	}
	return nil
}

// waitForResources waits until the hub serves all of them, or ctx is done. A group may be served
// before its kinds are.
func waitForResources(ctx context.Context, config *rest.Config, all ...schema.GroupVersionResource) error {
	hub, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("preparing discovery: %w", err)
	}
	for _, wanted := range all {
		told := false
		err := wait.PollUntilContextCancel(ctx, 2*time.Second, true, func(context.Context) (served bool, err error) {
			resources, err := hub.ServerResourcesForGroupVersion(wanted.GroupVersion().String())
			if err == nil && slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == wanted.Resource }) {
				return true, nil
			}
			if err == nil {
				err = errors.New("the hub does not list it in its API group")
			}
			if !told {
				klog.FromContext(ctx).Error(err, "Waiting for the hub to serve a resource; is its CustomResourceDefinition installed?", "resource", wanted.GroupResource().String())
				told = true
			}
			return false, nil
		})
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", wanted.GroupResource(), err)
		}
	}
	return nil
}

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
