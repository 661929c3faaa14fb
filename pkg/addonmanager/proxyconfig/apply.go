package proxyconfig

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

const fieldOwner = client.FieldOwner(identity.AddonManager)

// upstreamFieldOwners wrote the same objects with updates before: the name of
// upstream's binary.
var upstreamFieldOwners = sets.New("manager")

// apply applies what is wanted and removes what is not, if it is ours.
func (r *Reconciler) apply(ctx context.Context, c *v1alpha1.ManagedProxyConfiguration, wanted, unwanted []client.Object) error {
	for _, object := range wanted {
		if err := r.applyOne(ctx, object); err != nil {
			return err
		}
	}
	former, err := r.formerLoadBalancers(ctx, c, wanted)
	if err != nil {
		return err
	}
	for _, object := range slices.Concat(unwanted, former) {
		if err := r.remove(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) applyOne(ctx context.Context, object client.Object) error {
	if err := r.adopt(ctx, object); err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return fmt.Errorf("converting %T: %w", object, err)
	}
	// Zero values that mean "not set" are not ours to own.
	delete(content, "status")
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(u.Object, "spec", "template", "metadata", "creationTimestamp")
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %q: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

// adopt takes over the fields that upstream's manager wrote. Fields that we do not set
// would stay otherwise: the command of its proxy server, its mounts, the client
// port on its load balancer.
func (r *Reconciler) adopt(ctx context.Context, object client.Object) error {
	switch object.(type) {
	case *appsv1.Deployment, *corev1.Service:
	default:
		return nil // what upstream wrote there is in lists that are replaced as a whole
	}
	live := object.DeepCopyObject().(client.Object)
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(object), live); err != nil {
		return client.IgnoreNotFound(err)
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(live, upstreamFieldOwners, string(fieldOwner))
	if err != nil {
		return fmt.Errorf("reading who wrote %T %q: %w", object, object.GetName(), err)
	}
	if patch == nil {
		return nil
	}
	if err := r.Client.Patch(ctx, live, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return fmt.Errorf("taking over %T %q: %w", object, object.GetName(), err)
	}
	return nil
}

// formerLoadBalancers are load balancers that this configuration no longer wants. They
// would keep the agent port open to everything that can reach them.
func (r *Reconciler) formerLoadBalancers(ctx context.Context, c *v1alpha1.ManagedProxyConfiguration, wanted []client.Object) ([]client.Object, error) {
	var services corev1.ServiceList
	if err := r.Client.List(ctx, &services, client.InNamespace(c.Spec.ProxyServer.Namespace), client.MatchingLabels(selector())); err != nil {
		return nil, fmt.Errorf("listing load balancers: %w", err)
	}
	var former []client.Object
	for i := range services.Items {
		service := &services.Items[i]
		mine := slices.ContainsFunc(service.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == c.UID })
		kept := slices.ContainsFunc(wanted, func(o client.Object) bool {
			_, ok := o.(*corev1.Service)
			return ok && o.GetName() == service.Name
		})
		if service.Spec.Type == corev1.ServiceTypeLoadBalancer && mine && !kept {
			former = append(former, service)
		}
	}
	return former, nil
}

func (r *Reconciler) remove(ctx context.Context, object client.Object) error {
	live := object.DeepCopyObject().(client.Object)
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(object), live)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(live.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.Kind == "ManagedProxyConfiguration" }) {
		return nil
	}
	if err := r.Client.Delete(ctx, live); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing %T %q: %w", object, object.GetName(), err)
	}
	return nil
}
