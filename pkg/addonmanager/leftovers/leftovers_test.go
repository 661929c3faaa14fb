package leftovers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func ownedBy(kind, namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: "cluster-proxy", UID: "1"}}}
}

// upstream is what its addon manager makes on a hub with two clusters.
func upstream() []client.Object {
	group := []rbacv1.Subject{{Kind: "Group", Name: "open-cluster-management:cluster-proxy", APIGroup: rbacv1.GroupName}}
	review := []rbacv1.PolicyRule{{APIGroups: []string{"authentication.k8s.io"}, Verbs: []string{"create"}, Resources: []string{"tokenreviews"}}}
	leases := []rbacv1.PolicyRule{{APIGroups: []string{"coordination.k8s.io"}, Verbs: []string{"*"}, Resources: []string{"leases"}}}
	objects := []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: tokenReview}, Rules: review},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: tokenReview}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: tokenReview}, Subjects: group},
		&corev1.Secret{ObjectMeta: ownedBy("ManagedProxyConfiguration", "hub", serverCert)},
	}
	for _, cluster := range []string{"cluster1", "cluster2"} {
		objects = append(objects,
			&rbacv1.Role{ObjectMeta: ownedBy("ManagedClusterAddOn", cluster, agentRole), Rules: leases},
			&rbacv1.RoleBinding{ObjectMeta: ownedBy("ManagedClusterAddOn", cluster, agentRole), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: agentRole}, Subjects: group})
	}
	return objects
}

// others have the names of leftovers and are somebody else's.
func others() []client.Object {
	return []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: tokenReview}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Verbs: []string{"get"}, Resources: []string{"pods"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: tokenReview}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: tokenReview}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "jane"}}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "hub", Name: serverCert}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: agentRole}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: agentRole}},
		&rbacv1.Role{ObjectMeta: ownedBy("ManagedClusterAddOn", "no-cluster", agentRole)},
	}
}

func TestRemover(t *testing.T) {
	failing := errors.New("no")
	clusters := []string{"cluster1", "cluster2"}
	for i := range 100 {
		clusters = append(clusters, fmt.Sprint("without-", i))
	}
	for _, tc := range []struct {
		name     string
		objects  []client.Object
		moving   bool
		refuse   string // the name that cannot be deleted
		wantLeft int
		wantDone bool
		wantErr  error
	}{
		{name: "all of upstream's goes", objects: upstream(), wantDone: true},
		{name: "nothing is there", wantDone: true},
		{name: "those of others stay", objects: others(), wantLeft: 6, wantDone: true},
		{name: "upstream still serves", objects: upstream(), moving: true, wantLeft: 7},
		{name: "one that cannot be removed keeps none of the others", objects: upstream(), refuse: serverCert, wantLeft: 1, wantErr: failing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := clientgoscheme.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			byName := func(object client.Object) []string { return []string{object.GetName()} }
			asked := 0
			hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(tc.objects...).
				WithIndex(&rbacv1.Role{}, "metadata.name", byName).WithIndex(&rbacv1.RoleBinding{}, "metadata.name", byName).
				WithInterceptorFuncs(interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
						asked++
						return c.Get(ctx, key, object, options...)
					},
					List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
						asked++
						return c.List(ctx, list, options...)
					},
					Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
						if object.GetName() == tc.refuse {
							return failing
						}
						return c.Delete(ctx, object)
					},
				}).Build()
			remover := &Remover{
				Hub: hub, Namespace: "hub",
				Clusters: func(context.Context) ([]string, error) { return clusters, nil },
				Moving:   func(context.Context) (bool, error) { return tc.moving, nil },
			}
			done, err := remover.once(t.Context())
			if done != tc.wantDone || !errors.Is(err, tc.wantErr) {
				t.Errorf("done is %v, error %v; want %v, %v", done, err, tc.wantDone, tc.wantErr)
			}
			// Two lists, the three objects of the hub, and each object of a cluster that there is.
			if most := 5 + 4; asked > most {
				t.Errorf("asked the hub %d times, want at most %d, however many clusters there are", asked, most)
			}
			left := slices.DeleteFunc(slices.Clone(tc.objects), func(object client.Object) bool {
				return hub.Get(t.Context(), client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object)) != nil
			})
			if diff := cmp.Diff(tc.wantLeft, len(left)); diff != "" {
				t.Errorf("objects that are left (-want +got): %s", diff)
			}
		})
	}
}
