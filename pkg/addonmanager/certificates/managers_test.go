package certificates

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestTwoManagersIssueOnce has two addon managers find the same certificate
// missing, or at its end, at the same time, as when a leader does not know yet that
// it is none. It is issued once, and neither replaces what the other has issued.
func TestTwoManagersIssueOnce(t *testing.T) {
	const name = "proxy-client"
	for _, test := range []struct {
		name    string
		deleted bool
	}{{"missing", true}, {"at its end", false}} {
		t.Run(test.name, func(t *testing.T) {
			plain := newClient().(client.WithWatch)
			if _, err := Ensure(t.Context(), plain, params(), start); err != nil {
				t.Fatal(err)
			}
			now := start.Add(leafValidity * 9 / 10)
			if test.deleted {
				now = start
				if err := plain.Delete(t.Context(), get(t, plain, name)); err != nil {
					t.Fatal(err)
				}
			}
			var writes atomic.Int64
			var read sync.WaitGroup
			read.Add(2)
			clients := []client.Client{asManager(plain, name, &read, &writes), asManager(plain, name, &read, &writes)}
			var both sync.WaitGroup
			for _, c := range clients {
				both.Go(func() {
					// The second one may find out that it was too late, and tries again.
					if _, err := Ensure(t.Context(), c, params(), now); err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
						t.Error(err)
					}
				})
			}
			both.Wait()
			for range 3 {
				for _, c := range clients {
					if _, err := Ensure(t.Context(), c, params(), now); err != nil {
						t.Error(err)
					}
				}
			}
			if n := writes.Load(); n != 1 {
				t.Errorf("%s was issued %d times, want once", name, n)
			}
		})
	}
}

// asManager is a manager's client: it waits until the other one has read the Secret
// as well, and counts what it writes to it.
func asManager(plain client.WithWatch, name string, read *sync.WaitGroup, writes *atomic.Int64) client.Client {
	first := sync.OnceFunc(func() { read.Done(); read.Wait() })
	count := func(object client.Object, err error) error {
		if err == nil && object.GetName() == name {
			writes.Add(1)
		}
		return err
	}
	return interceptor.NewClient(plain, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			err := c.Get(ctx, key, object, options...)
			if key.Name == name {
				first()
			}
			return err
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return count(object, c.Create(ctx, object, options...))
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			return count(object, c.Update(ctx, object, options...))
		},
	})
}
