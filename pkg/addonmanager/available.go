package addonmanager

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// addAvailability keeps the metric that has a series for each cluster with the addon.
// Beside what proxy servers know, it tells which agents are missing.
func addAvailability(mgr ctrl.Manager, registry prometheus.Registerer) error {
	return ctrl.NewControllerManagedBy(mgr).Named("availability").For(&addonv1alpha1.ManagedClusterAddOn{}).
		Complete(showAvailability(mgr.GetClient(), registry))
}

func showAvailability(reader client.Reader, registry prometheus.Registerer) reconcile.Func {
	available := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "cluster_proxy_manager_addon_available",
		Help: "1 if the condition Available of a cluster's addon is True, else 0. A cluster without the addon has no series.",
	}, []string{"managed_cluster"})
	registry.MustRegister(available)
	return func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		if request.Name != identity.AddonName {
			return reconcile.Result{}, nil
		}
		var addon addonv1alpha1.ManagedClusterAddOn
		err := reader.Get(ctx, request.NamespacedName, &addon)
		switch {
		case apierrors.IsNotFound(err), err == nil && addon.DeletionTimestamp != nil:
			available.DeleteLabelValues(request.Namespace)
		case err != nil:
			return reconcile.Result{}, err
		case meta.IsStatusConditionTrue(addon.Status.Conditions, addonv1alpha1.ManagedClusterAddOnConditionAvailable):
			available.WithLabelValues(request.Namespace).Set(1)
		default:
			available.WithLabelValues(request.Namespace).Set(0)
		}
		return reconcile.Result{}, nil
	}
}
