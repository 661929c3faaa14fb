package leftovers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// Names that upstream gives.
const (
	tokenReview = "cluster-proxy-addon-agent-tokenreview"
	agentRole   = "cluster-proxy-addon-agent"
	serverCert  = "cluster-proxy-service-proxy-server-cert"
)

// retry is how long after a failure, or while upstream's proxy servers serve, the
// next attempt is made.
const retry = 10 * time.Second

// Remover removes the leftovers.
type Remover struct {
	// Hub reads and deletes; it must not be a cache.
	Hub client.Client
	// Namespace is the addon's on the hub.
	Namespace string
	// Clusters are those with the addon.
	Clusters func(ctx context.Context) ([]string, error)
	// Moving reports whether upstream's proxy servers still serve.
	Moving func(ctx context.Context) (bool, error)
}

// Run removes them all, once, and ends when that is done or ctx is.
func (r *Remover) Run(ctx context.Context) error {
	for {
		done, err := r.once(ctx)
		if done || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Leftovers of OCM's own cluster-proxy are still there", "retry", retry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry):
		}
	}
}

// once reports whether nothing is left.
func (r *Remover) once(ctx context.Context) (bool, error) {
	moving, err := r.Moving(ctx)
	if err != nil || moving {
		return false, err
	}
	clusters, err := r.Clusters(ctx)
	if err != nil {
		return false, fmt.Errorf("listing clusters: %w", err)
	}
	found, err := r.ofClusters(ctx, clusters)
	if err != nil {
		return false, err
	}
	var failed []error
	for _, object := range append(r.ofHub(), found...) {
		failed = append(failed, r.remove(ctx, object))
	}
	err = errors.Join(failed...)
	return err == nil, err
}

// ofHub names what may be left and is there once. A binding comes before its role.
func (r *Remover) ofHub() []client.Object {
	return []client.Object{
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: tokenReview}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: tokenReview}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: serverCert, Namespace: r.Namespace}},
	}
}

// ofClusters finds what is left in the namespaces of clusters, bindings before their roles. To
// ask for each by its namespace took two requests a cluster, each time the addon manager starts.
func (r *Remover) ofClusters(ctx context.Context, clusters []string) (found []client.Object, err error) {
	var (
		bindings rbacv1.RoleBindingList
		roles    rbacv1.RoleList
	)
	for _, list := range []client.ObjectList{&bindings, &roles} {
		if err := r.Hub.List(ctx, list, client.MatchingFields{"metadata.name": agentRole}); err != nil {
			return nil, fmt.Errorf("looking for %q in the namespaces of clusters: %w", agentRole, err)
		}
	}
	names := sets.New(clusters...)
	for i := range bindings.Items {
		found = append(found, &bindings.Items[i])
	}
	for i := range roles.Items {
		found = append(found, &roles.Items[i])
	}
	return slices.DeleteFunc(found, func(object client.Object) bool { return !names.Has(object.GetNamespace()) }), nil
}

func (r *Remover) remove(ctx context.Context, object client.Object) error {
	err := r.Hub.Get(ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %T %q: %w", object, client.ObjectKeyFromObject(object), err)
	}
	if !upstreams(object) {
		return nil
	}
	uid, version := object.GetUID(), object.GetResourceVersion()
	err = r.Hub.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing %T %q: %w", object, client.ObjectKeyFromObject(object), err)
	}
	klog.FromContext(ctx).Info("Removed a leftover of OCM's own cluster-proxy", "kind", fmt.Sprintf("%T", object), "object", client.ObjectKeyFromObject(object))
	return nil
}

// upstreams reports whether upstream's addon manager made an object.
func upstreams(object client.Object) bool {
	switch o := object.(type) {
	case *rbacv1.ClusterRoleBinding:
		return o.RoleRef.Kind == "ClusterRole" && o.RoleRef.Name == tokenReview && len(o.Subjects) > 0 &&
			!slices.ContainsFunc(o.Subjects, func(s rbacv1.Subject) bool { return s.Kind != rbacv1.GroupKind || s.Name != identity.Organization })
	case *rbacv1.ClusterRole:
		return equality.Semantic.DeepEqual(o.Rules, []rbacv1.PolicyRule{{APIGroups: []string{"authentication.k8s.io"}, Verbs: []string{"create"}, Resources: []string{"tokenreviews"}}})
	case *corev1.Secret:
		return owned(o, "ManagedProxyConfiguration")
	}
	return owned(object, "ManagedClusterAddOn")
}

func owned(object client.Object, kind string) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.Kind == kind && o.Name == identity.AddonName })
}
