package apiservice

import (
	"context"
	"encoding/base64"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func secret(name, ca string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "addons", Name: name}, Data: map[string][]byte{"ca.crt": []byte(ca)}}
}

func service(spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(kind)
	object.SetName(Names[2])
	return object
}

func TestBundleIsKept(t *testing.T) {
	ours := map[string]any{"name": "cluster-proxy-addon-user", "namespace": "addons"}
	versions := map[string]any{"group": "g", "versionPriority": int64(15), "service": ours}
	request := ctrl.Request{NamespacedName: client.ObjectKey{Name: Names[2]}}
	for _, tc := range []struct {
		name    string
		objects []client.Object
		want    string
	}{
		{"the hub CA", []client.Object{secret("proxy-server-ca", "a"), service(versions)}, "a\n"},
		{"both CAs of a rotation", []client.Object{secret("proxy-server-ca", "a\nb\n"), service(map[string]any{"caBundle": "YQo=", "service": ours})}, "a\nb\n"},
		{"a provided certificate's CA", []client.Object{secret("proxy-server-ca", "a"), secret("cluster-proxy-user-serving-cert", "c"), service(versions)}, "a\nc\n"},
		{"another Service's", []client.Object{secret("proxy-server-ca", "a"), service(map[string]any{"service": map[string]any{"name": "karmada-search", "namespace": "karmada-system"}})}, ""},
		{"nothing to trust yet", []client.Object{service(versions)}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(tc.objects...).Build()
			r := &Reconciler{Client: c, Hub: c, Namespace: "addons"}
			result, err := r.Reconcile(t.Context(), request)
			if err != nil || result.RequeueAfter == 0 {
				t.Fatalf("Reconcile returned %v, %v; want to be asked again later, and no error", result, err)
			}
			got := service(nil)
			if err := c.Get(t.Context(), request.NamespacedName, got); err != nil {
				t.Fatal(err)
			}
			encoded, _, _ := unstructured.NestedString(got.Object, "spec", "caBundle")
			bundle, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil || string(bundle) != tc.want {
				t.Errorf("bundle %q, %v, want %q", bundle, err, tc.want)
			}
		})
	}
}

func TestNoAPIServiceIsFine(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(secret("proxy-server-ca", "a")).Build()
	if _, err := (&Reconciler{Client: c, Hub: c, Namespace: "addons"}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: Names[0]}}); err != nil {
		t.Error(err)
	}
}

// TestNoRightToAPIServicesIsFine asks a hub whose chart made no APIService: it then gives the addon
// manager no right to one either, and RBAC is asked before the object is looked for.
func TestNoRightToAPIServicesIsFine(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(secret("proxy-server-ca", "a")).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if object.GetObjectKind().GroupVersionKind() == kind {
				return apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: "apiservices"}, key.Name, errors.New("RBAC"))
			}
			return c.Get(ctx, key, object, opts...)
		},
	}).Build()
	result, err := (&Reconciler{Client: c, Hub: c, Namespace: "addons"}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: Names[0]}})
	if err != nil || result.RequeueAfter != checkAgain {
		t.Errorf("Reconcile returned %v, %v; want to be asked again after %v, and no error", result, err, checkAgain)
	}
}
