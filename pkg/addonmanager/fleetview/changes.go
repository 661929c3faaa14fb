package fleetview

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// Interval is how long events are gathered before a round over all views.
const Interval = 5 * time.Second

// round handles each event by asking for a round in Interval. The queue joins requests
// for the same round.
type round struct{}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (round) Create(_ context.Context, _ event.CreateEvent, q queue) { ask(q) }

func (round) Update(_ context.Context, _ event.UpdateEvent, q queue) { ask(q) }

func (round) Delete(_ context.Context, _ event.DeleteEvent, q queue) { ask(q) }

func (round) Generic(_ context.Context, _ event.GenericEvent, q queue) { ask(q) }

// ask asks for a request without a name, which means all views.
func ask(q queue) { q.AddAfter(reconcile.Request{}, Interval) }

// changes lets events through that change a part of an object that the status of views
// depends on.
func changes(part func(client.Object) any) predicate.Predicate {
	concerns := func(object client.Object) bool { return part(object) != nil }
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return concerns(e.Object) },
		DeleteFunc:  func(e event.DeleteEvent) bool { return concerns(e.Object) },
		GenericFunc: func(e event.GenericEvent) bool { return concerns(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !equality.Semantic.DeepEqual(part(e.ObjectOld), part(e.ObjectNew))
		},
	}
}

// partOfCluster returns nothing for clusters that are not served: they appear in no
// status.
func partOfCluster(object client.Object) any {
	cluster := object.(*clusterv1.ManagedCluster)
	if cluster.DeletionTimestamp != nil || !cluster.Spec.HubAcceptsClient {
		return nil
	}
	if cluster.Labels == nil {
		return map[string]string{}
	}
	return cluster.Labels
}

func partOfAddon(object client.Object) any {
	addon := object.(*addonv1alpha1.ManagedClusterAddOn)
	if addon.Name != identity.AddonName || addon.DeletionTimestamp != nil {
		return nil
	}
	available := meta.FindStatusCondition(addon.Status.Conditions, addonv1alpha1.ManagedClusterAddOnConditionAvailable)
	if available == nil {
		return ""
	}
	// A reachable cluster is a number only.
	if available.Status == "True" {
		return available.Status
	}
	return unreachable(addon.Namespace, available)
}

func partOfSet(object client.Object) any {
	return object.(*clusterv1beta2.ManagedClusterSet).Spec.ClusterSelector
}
