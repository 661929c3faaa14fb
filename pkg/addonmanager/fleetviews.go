package addonmanager

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/fleetview"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/karmada"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// addFleetViews waits for the kinds that views are made of, while everything else
// works. The hub serves their groups before them: Helm does not upgrade a
// CustomResourceDefinition that another release owns, and then FleetView is missing.
func addFleetViews(ctx context.Context, mgr ctrl.Manager) error {
	hub, err := discovery.NewDiscoveryClientForConfig(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("preparing discovery: %w", err)
	}
	for _, wanted := range []schema.GroupVersionResource{
		v1alpha1.GroupVersion.WithResource("fleetviews"),
		{Group: clusterv1beta2.GroupName, Version: clusterv1beta2.GroupVersion.Version, Resource: "managedclustersets"},
	} {
		if err := waitForResource(ctx, hub, wanted); err != nil {
			return nil // the manager ends
		}
	}
	if err := (&fleetview.Reconciler{Client: mgr.GetClient()}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("starting the controller of fleet views: %w", err)
	}
	return nil
}

// addRegistries waits for the kind that Karmada's ResourceRegistries are stored as.
func addRegistries(ctx context.Context, mgr ctrl.Manager) error {
	hub, err := discovery.NewDiscoveryClientForConfig(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("preparing discovery: %w", err)
	}
	if err := waitForResource(ctx, hub, v1alpha1.GroupVersion.WithResource("karmadaresourceregistries")); err != nil {
		return nil // the manager ends
	}
	if err := (&karmada.Reconciler{Client: mgr.GetClient()}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("starting the controller of ResourceRegistries: %w", err)
	}
	return nil
}

// waitForResource waits until the hub serves a resource, or ctx is done.
func waitForResource(ctx context.Context, hub discovery.ServerResourcesInterface, wanted schema.GroupVersionResource) error {
	told := false
	return wait.PollUntilContextCancel(ctx, 10*time.Second, true, func(context.Context) (served bool, err error) {
		resources, err := hub.ServerResourcesForGroupVersion(wanted.GroupVersion().String())
		if err == nil && slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == wanted.Resource }) {
			return true, nil
		}
		if !told {
			klog.FromContext(ctx).Info("Waiting for the hub to serve a resource; is its CustomResourceDefinition installed?", "resource", wanted.GroupResource().String(), "err", err)
			told = true
		}
		return false, nil
	})
}
