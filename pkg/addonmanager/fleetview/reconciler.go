package fleetview

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/ownstatus"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// Reconciler reconciles the status of FleetViews.
type Reconciler struct {
	// Client reads views, clusters, addons and sets from caches, and writes status.
	Client client.Client

	// writes bounds how often the numbers of a view are written, by the view's name.
	writes map[string]*rate.Limiter
}

// writesInRow is how many changes of a view's numbers are written as they come; after them
// one a minute is. A fleet always has a cluster that comes and goes.
const writesInRow = 5

// SetupWithManager starts the reconciler with the manager, which may be running
// already. The hub must serve FleetViews and ManagedClusterSets.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("fleetview").
		For(&v1alpha1.FleetView{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&clusterv1.ManagedCluster{}, round{}, builder.WithPredicates(changes(partOfCluster))).
		Watches(&addonv1alpha1.ManagedClusterAddOn{}, round{}, builder.WithPredicates(changes(partOfAddon))).
		Watches(&clusterv1beta2.ManagedClusterSet{}, round{}, builder.WithPredicates(changes(partOfSet))).
		Complete(r)
}

// Reconcile writes the status of one view, or of all if the request names none.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var views v1alpha1.FleetViewList
	if request.Name == "" {
		if err := r.Client.List(ctx, &views); err != nil {
			return ctrl.Result{}, fmt.Errorf("listing FleetViews: %w", err)
		}
	} else {
		var view v1alpha1.FleetView
		if err := r.Client.Get(ctx, request.NamespacedName, &view); err != nil {
			if apierrors.IsNotFound(err) {
				delete(r.writes, request.Name)
			}
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		views.Items = append(views.Items, view)
	}
	hub, err := r.read(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	var result ctrl.Result
	var errs []error
	for i := range views.Items {
		view := &views.Items[i]
		if view.DeletionTimestamp != nil {
			continue
		}
		status := hub.statusOf(view)
		switch {
		case equality.Semantic.DeepEqual(status, view.Status):
		case isUrgent(&status, &view.Status) || r.mayWrite(view.Name):
			errs = append(errs, ownstatus.Apply(ctx, r.Client, v1alpha1.GroupVersion.WithKind("FleetView"), client.ObjectKeyFromObject(view), &status))
		default:
			result.RequeueAfter = Interval
		}
	}
	return result, errors.Join(errs...)
}

// isUrgent reports whether a change of a status is of more than its numbers.
func isUrgent(status, was *v1alpha1.FleetViewStatus) bool {
	return status.ObservedGeneration != was.ObservedGeneration || !equality.Semantic.DeepEqual(status.Conditions, was.Conditions)
}

// mayWrite reports whether the numbers of a view may be written now. The controller calls
// Reconcile from one goroutine.
func (r *Reconciler) mayWrite(view string) bool {
	if r.writes[view] == nil {
		if r.writes == nil {
			r.writes = map[string]*rate.Limiter{}
		}
		r.writes[view] = rate.NewLimiter(rate.Every(time.Minute), writesInRow)
	}
	return r.writes[view].Allow()
}

// read reads what the status of views depends on. It shares the objects with the
// cache, and nothing here writes to them.
func (r *Reconciler) read(ctx context.Context) (*hub, error) {
	var (
		clusters clusterv1.ManagedClusterList
		addons   addonv1alpha1.ManagedClusterAddOnList
		sets     clusterv1beta2.ManagedClusterSetList
	)
	for _, list := range []client.ObjectList{&clusters, &addons, &sets} {
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing what views are made of: %w", err)
		}
	}
	return newHub(clusters.Items, addons.Items, sets.Items), nil
}
