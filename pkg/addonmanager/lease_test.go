package addonmanager

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

func TestOwnLease(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: identity.AddonManager}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: leaseName}}
	deployment := &appsv1.Deployment{ObjectMeta: meta}
	deployment.UID = "d"
	key := client.ObjectKeyFromObject(deployment)
	for name, test := range map[string]struct {
		objects []client.Object
		want    int
	}{
		"installed by the chart": {[]client.Object{lease, deployment}, 1},
		"run by hand":            {[]client.Object{lease}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithObjects(test.objects...).Build()
			if err := ownLease(t.Context(), c, c, key); err != nil {
				t.Fatal(err)
			}
			var got coordinationv1.Lease
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(lease), &got); err != nil || len(got.OwnerReferences) != test.want {
				t.Errorf("owners are %v, %v; want %d", got.OwnerReferences, err, test.want)
			}
		})
	}
}
