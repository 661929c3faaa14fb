package agentaddon

import (
	"context"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestRefusalIsNotThatThisIsNoHub has a kube-apiserver that has just started, and refuses
// everybody. The hub's own agent would be told that it is on no hub, and be rolled twice.
func TestRefusalIsNotThatThisIsNoHub(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := rbacv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	refuses := true
	hub := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: impersonatorPrefix + "ns", Annotations: map[string]string{clusterAnnotation: "uid"}}}).
		WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if refuses {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "clusterroles"}, key.Name, nil)
			}
			return c.Get(ctx, key, object, options...)
		}}).Build()
	addon, cluster := Addon{Hub: hub}, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
	if err := addon.recognizeHub(t.Context(), &values{}, cluster, "ns"); err == nil {
		t.Error("a hub that refuses to answer has said whether it is this cluster")
	}
	refuses = false
	var v values
	if err := addon.recognizeHub(t.Context(), &v, cluster, "ns"); !v.OnHub || err != nil {
		t.Errorf("right afterwards: on hub %t, %v; want true", v.OnHub, err)
	}
}
