package apiservice

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	karmadav1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/karmada/v1alpha1"
)

// checkAgain is when the bundle is looked at without a reason.
const checkAgain = 5 * time.Minute

// Names are those of the APIServices: the addon's own, and those of Karmada's API.
var Names = []string{nameOf(v1alpha1.GroupVersion), nameOf(karmadav1alpha1.ClusterGroupVersion), nameOf(karmadav1alpha1.SearchGroupVersion)}

func nameOf(gv schema.GroupVersion) string { return gv.Version + "." + gv.Group }

var kind = schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}

// Reconciler writes the bundle.
type Reconciler struct {
	// Client reads the Secrets, from a cache if it has one.
	Client client.Client
	// Hub reads and patches the APIServices, without a cache: it needs get and
	// patch on these only.
	Hub client.Client
	// Namespace is that of the Secrets.
	Namespace string
}

// SetupWithManager makes the Secrets call Reconcile.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == r.Namespace && (o.GetName() == certificates.HubBundleSecret || o.GetName() == certificates.UserServingSecret)
	})
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		requests := make([]reconcile.Request, 0, len(Names))
		for _, name := range Names {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
		}
		return requests
	})
	return ctrl.NewControllerManagedBy(mgr).Named("apiservice").Watches(&corev1.Secret{}, all, builder.WithPredicates(ours)).Complete(r)
}

// Reconcile writes the bundle if it is not there yet. Without an APIService it
// does nothing: the chart was told to make none, and then gives no right to one. One that
// leads to another Service is somebody else's.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	again := ctrl.Result{RequeueAfter: checkAgain}
	bundle, err := r.bundle(ctx)
	if err != nil || len(bundle) == 0 {
		return again, err
	}
	service := &unstructured.Unstructured{}
	service.SetGroupVersionKind(kind)
	err = r.Hub.Get(ctx, request.NamespacedName, service)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		return again, nil
	}
	if err != nil {
		return again, fmt.Errorf("reading APIService %q: %w", request.Name, err)
	}
	if namespace, _, _ := unstructured.NestedString(service.Object, "spec", "service", "namespace"); namespace != r.Namespace {
		return again, nil
	}
	encoded, _, _ := unstructured.NestedString(service.Object, "spec", "caBundle")
	if encoded == base64.StdEncoding.EncodeToString(bundle) {
		return again, nil
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"caBundle": bundle}})
	if err != nil {
		return again, err
	}
	if err := r.Hub.Patch(ctx, service, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return again, fmt.Errorf("writing the CA bundle of APIService %q: %w", request.Name, err)
	}
	return again, nil
}

// bundle is what the proxy API's serving certificate is verified with: the hub
// CA's bundle, and the CA that came with a provided certificate.
func (r *Reconciler) bundle(ctx context.Context) ([]byte, error) {
	var parts [][]byte
	for _, name := range []string{certificates.HubBundleSecret, certificates.UserServingSecret} {
		secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name}}
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(&secret), &secret)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading secret %q: %w", name, err)
		}
		if ca := bytes.TrimSpace(secret.Data["ca.crt"]); len(ca) > 0 {
			parts = append(parts, append(bytes.Clone(ca), '\n'))
		}
	}
	return bytes.Join(parts, nil), nil
}
