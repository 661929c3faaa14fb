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
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/passes"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// addFleetViews waits for the kinds that views are made of, while everything else
// works. The hub serves their groups before them: Helm does not upgrade a
// CustomResourceDefinition that another release owns, and then FleetView is missing.
func addFleetViews(ctx context.Context, mgr ctrl.Manager) error {
	return startWhenServed(ctx, mgr, "fleet views", &fleetview.Reconciler{Client: mgr.GetClient()},
		v1alpha1.GroupVersion.WithResource("fleetviews"),
		schema.GroupVersionResource{Group: clusterv1beta2.GroupName, Version: clusterv1beta2.GroupVersion.Version, Resource: "managedclustersets"})
}

// addRegistries waits for the kind that Karmada's ResourceRegistries are stored as.
func addRegistries(ctx context.Context, mgr ctrl.Manager) error {
	return startWhenServed(ctx, mgr, "ResourceRegistries", &karmada.Reconciler{Client: mgr.GetClient()},
		v1alpha1.GroupVersion.WithResource("karmadaresourceregistries"))
}

// addPasses waits for the kind that passes are recorded in.
func addPasses(ctx context.Context, mgr ctrl.Manager) error {
	return startWhenServed(ctx, mgr, "passes", &passes.Reconciler{Client: mgr.GetClient()}, v1alpha1.GroupVersion.WithResource("passes"))
}

// controller is a reconciler that starts with a manager, which may be running already.
type controller interface {
	SetupWithManager(mgr ctrl.Manager) error
}

// startWhenServed starts the controller of something when the hub serves all resources
// that it watches.
func startWhenServed(ctx context.Context, mgr ctrl.Manager, of string, c controller, watched ...schema.GroupVersionResource) error {
	hub, err := discovery.NewDiscoveryClientForConfig(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("preparing discovery: %w", err)
	}
	for _, wanted := range watched {
		if err := waitForResource(ctx, hub, wanted); err != nil {
			return nil // the manager ends
		}
	}
	if err := c.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("starting the controller of %s: %w", of, err)
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
			klog.FromContext(ctx).Error(err, "Waiting for the hub to serve a resource; is its CustomResourceDefinition installed?", "resource", wanted.GroupResource().String())
			told = true
		}
		return false, nil
	})
}
