package proxyconfig

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// lockedInformers may be asked at the same time, as real ones may: a controller starts all its
// watches at once, and two of them are of Secrets.
type lockedInformers struct {
	*informertest.FakeInformers
	mu sync.Mutex
}

func (l *lockedInformers) GetInformer(ctx context.Context, object client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	informer, err := l.FakeInformers.GetInformer(ctx, object, options...)
	return &lockedInformer{informer, &l.mu}, err
}

type lockedInformer struct {
	cache.Informer
	mu *sync.Mutex
}

func (l *lockedInformer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Informer.AddEventHandlerWithOptions(handler, options)
}

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
		informers := &lockedInformers{FakeInformers: &informertest.FakeInformers{Scheme: scheme}}
		configurations, err := informers.FakeInformerFor(t.Context(), &v1alpha1.ManagedProxyConfiguration{})
		if err != nil {
			t.Fatal(err)
		}
		manager, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{
			Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
			Controller:     config.Controller{SkipNameValidation: new(true)}, // the test may run twice
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
