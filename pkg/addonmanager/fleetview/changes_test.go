package fleetview

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestChanges(t *testing.T) {
	heartbeat := managed("a", nil)
	heartbeat.Status.Conditions = []metav1.Condition{{Type: "ManagedClusterConditionAvailable", Status: metav1.ConditionTrue}}
	heartbeat.Status.Capacity = clusterv1.ResourceList{}
	denied := managed("a", nil)
	denied.Spec.HubAcceptsClient = false
	later := addon("a", metav1.ConditionTrue)
	later.Status.Conditions[0].Message, later.Annotations = "other words", map[string]string{"a": "b"}
	other := addon("a", metav1.ConditionFalse)
	other.Name = "another-addon"
	for name, test := range map[string]struct {
		part        func(client.Object) any
		before, now client.Object
		want        bool
	}{
		"status of a cluster":        {partOfCluster, managed("a", nil), heartbeat, false},
		"labels of a cluster":        {partOfCluster, managed("a", nil), managed("a", map[string]string{"region": "eu"}), true},
		"a cluster is accepted":      {partOfCluster, denied, managed("a", nil), true},
		"words of an addon":          {partOfAddon, addon("a", metav1.ConditionTrue), later, false},
		"an addon becomes available": {partOfAddon, addon("a", metav1.ConditionFalse), addon("a", metav1.ConditionTrue), true},
		"an addon reports itself":    {partOfAddon, addon("a", ""), addon("a", metav1.ConditionTrue), true},
		"another addon":              {partOfAddon, other, other, false},
		"a set without change":       {partOfSet, &clusterv1beta2.ManagedClusterSet{}, &clusterv1beta2.ManagedClusterSet{}, false},
		"the type of a set's selector": {partOfSet, &clusterv1beta2.ManagedClusterSet{}, &clusterv1beta2.ManagedClusterSet{Spec: clusterv1beta2.ManagedClusterSetSpec{
			ClusterSelector: clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := changes(test.part).Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.now}); got != test.want {
				t.Errorf("the event asks for a round: %v, want %v", got, test.want)
			}
		})
	}
	if changes(partOfCluster).Create(event.CreateEvent{Object: denied}) || !changes(partOfCluster).Create(event.CreateEvent{Object: heartbeat}) {
		t.Error("a cluster that is created asks for a round unless it is not served")
	}
	if changes(partOfAddon).Create(event.CreateEvent{Object: other}) || !changes(partOfAddon).Delete(event.DeleteEvent{Object: later}) {
		t.Error("an addon that is created or deleted asks for a round if it is ours")
	}
}

// TestRounds wants one round for all events of an interval.
func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		for want := range 3 {
			for range 5000 {
				round{}.Update(t.Context(), event.UpdateEvent{}, q)
				round{}.Create(t.Context(), event.CreateEvent{}, q)
			}
			synctest.Wait()
			if got := q.Len(); got != 0 {
				t.Fatalf("round %d: %d requests at once, want none before the interval is over", want, got)
			}
			request, _ := q.Get()
			if request != (reconcile.Request{}) || q.Len() != 0 {
				t.Errorf("round %d: request %v and %d more, want one for all views", want, request, q.Len())
			}
			q.Done(request)
		}
	})
}
