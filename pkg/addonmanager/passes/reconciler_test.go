package passes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

// TestAccount wants a pass to have its account for as long as it is valid, once, and none to be made for
// one that has expired or ends.
func TestAccount(t *testing.T) {
	now := metav1.Now()
	for name, tc := range map[string]struct {
		expires  time.Duration
		deletion *metav1.Time
		want     bool
	}{
		"valid":         {expires: time.Hour, want: true},
		"expired":       {expires: -time.Second},
		"being deleted": {expires: time.Hour, deletion: &now},
	} {
		pass := &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: "ann", UID: "3760aecd-1", DeletionTimestamp: tc.deletion}, Spec: v1alpha1.PassSpec{Expires: metav1.NewTime(now.Add(tc.expires))}}
		if tc.deletion != nil {
			pass.Finalizers = []string{metav1.FinalizerDeleteDependents}
		}
		c := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(pass).Build()
		for range 2 {
			if _, err := (&Reconciler{Client: c}).Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "ann"}}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		var accounts corev1.ServiceAccountList
		if err := c.List(t.Context(), &accounts); err != nil {
			t.Fatal(err)
		}
		if (len(accounts.Items) == 1) != tc.want {
			t.Fatalf("%s: %d accounts, want one: %t", name, len(accounts.Items), tc.want)
		}
		if tc.want {
			account := accounts.Items[0]
			if owner := account.OwnerReferences; account.Name != "ann-3760aecd" || account.Namespace != identity.PassNamespace || len(owner) != 1 || owner[0].UID != pass.UID || !*owner[0].BlockOwnerDeletion {
				t.Errorf("%s: the account is %+v", name, account.ObjectMeta)
			}
		}
	}
}

// TestExpiry wants a pass to stay until it expires, and to be deleted then: that one, and
// in the foreground.
func TestExpiry(t *testing.T) {
	scheme := newScheme(t)
	synctest.Test(t, func(t *testing.T) {
		pass := &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "first"},
			Spec: v1alpha1.PassSpec{MadeBy: "jane", Role: v1alpha1.PassViewer, Expires: metav1.NewTime(time.Now().Add(8 * time.Hour))}}
		var deletions []client.DeleteOptions
		behind := time.Duration(0) // of the hub's clock
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pass).WithInterceptorFuncs(interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				deletions = append(deletions, *(&client.DeleteOptions{}).ApplyOptions(options))
				return c.Delete(ctx, object)
			},
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				if dry := (&client.CreateOptions{}).ApplyOptions(options).DryRun; len(dry) > 0 {
					object.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-behind)))
					return nil
				}
				return c.Create(ctx, object, options...)
			},
		}).Build()
		r, request := &Reconciler{Client: c}, ctrl.Request{NamespacedName: types.NamespacedName{Name: "p"}}
		for _, wait := range []time.Duration{0, time.Hour, 7*time.Hour - time.Second} {
			time.Sleep(wait)
			left := time.Until(pass.Spec.Expires.Time)
			if result, err := r.Reconcile(t.Context(), request); err != nil || result.RequeueAfter != left {
				t.Errorf("%v before it expires: %v, %v; want to come again then", left, result, err)
			}
		}
		if len(deletions) > 0 {
			t.Fatal("the pass is deleted before it expires")
		}
		time.Sleep(time.Second)
		behind = time.Hour
		if result, err := r.Reconcile(t.Context(), request); err != nil || result.RequeueAfter != time.Hour || len(deletions) > 0 {
			t.Errorf("our clock is an hour ahead of the hub's: %v, %v, deletions %v; want to come again in an hour", result, err, deletions)
		}
		behind = 0
		if result, err := r.Reconcile(t.Context(), request); err != nil || !result.IsZero() {
			t.Errorf("%v, %v", result, err)
		}
		if len(deletions) != 1 || *deletions[0].PropagationPolicy != metav1.DeletePropagationForeground || *deletions[0].Preconditions.UID != "first" {
			t.Errorf("deletions are %+v, want one in the foreground of that UID", deletions)
		}
		if err := c.Get(t.Context(), request.NamespacedName, &v1alpha1.Pass{}); !apierrors.IsNotFound(err) {
			t.Errorf("the pass is there: %v", err)
		}
		if _, err := r.Reconcile(t.Context(), request); err != nil {
			t.Errorf("a pass that is gone: %v", err)
		}
	})
}

// TestPassThatIsBeingDeleted wants no second deletion of a pass that waits for what belongs to it.
func TestPassThatIsBeingDeleted(t *testing.T) {
	scheme := newScheme(t)
	now := metav1.Now()
	pass := &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: "p", DeletionTimestamp: &now, Finalizers: []string{metav1.FinalizerDeleteDependents}}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pass).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			t.Error("it is deleted again")
			return nil
		},
	}).Build()
	if _, err := (&Reconciler{Client: c}).Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "p"}}); err != nil {
		t.Error(err)
	}
}
