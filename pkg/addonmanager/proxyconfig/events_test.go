package proxyconfig

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// TestStatusIsNoReason has a real controller see changes of a configuration. While a CA rotates,
// each look finds that more clusters have moved, and writes that into the status: that must not be
// the reason for the next look.
func TestStatusIsNoReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stored := newClient(t)
		scheme := stored.Scheme()
		if err := addonv1alpha1.Install(scheme); err != nil {
			t.Fatal(err)
		}
		informers := &informertest.FakeInformers{Scheme: scheme}
		for _, kind := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}, &corev1.ConfigMap{}, &corev1.Secret{}, &corev1.ServiceAccount{}, &policyv1.PodDisruptionBudget{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}, &addonv1alpha1.ManagedClusterAddOn{}} {
			if _, err := informers.FakeInformerFor(t.Context(), kind); err != nil { // it makes one, without a lock
				t.Fatal(err)
			}
		}
		configurations, err := informers.FakeInformerFor(t.Context(), &v1alpha1.ManagedProxyConfiguration{})
		if err != nil {
			t.Fatal(err)
		}
		manager, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{
			Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
			NewCache:       func(*rest.Config, cache.Options) (cache.Cache, error) { return informers, nil },
			NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return stored, nil },
			MapperProvider: func(*rest.Config, *http.Client) (apimeta.RESTMapper, error) { return stored.RESTMapper(), nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		var looks atomic.Int32
		counted := interceptor.NewClient(stored.(client.WithWatch), interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			looks.Add(1)
			return apierrors.NewNotFound(schema.GroupResource{}, key.Name) // then there is nothing to do
		}})
		before := configuration(nil)
		if err := (&Reconciler{Client: counted}).SetupWithManager(manager); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- manager.Start(ctx) }()
		synctest.Wait()
		configurations.Add(before)
		synctest.Wait()
		for _, test := range []struct {
			change string
			of     func(*v1alpha1.ManagedProxyConfiguration)
			want   int32 // looks
		}{
			{"status", func(c *v1alpha1.ManagedProxyConfiguration) { c.Status.LastObservedGeneration++ }, 0},
			{"spec", func(c *v1alpha1.ManagedProxyConfiguration) { c.Generation++ }, 1},
			{"annotations", func(c *v1alpha1.ManagedProxyConfiguration) {
				c.Annotations = map[string]string{v1alpha1.RotateAnnotation: "1"}
			}, 1},
		} {
			already := looks.Load()
			changed := before.DeepCopy()
			changed.ResourceVersion += "1"
			test.of(changed)
			configurations.Update(before, changed)
			synctest.Wait()
			if got := looks.Load() - already; got != test.want {
				t.Errorf("the configuration was looked at %d times after its %s changed, want %d", got, test.change, test.want)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
