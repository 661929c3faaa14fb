package suite

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Resources of the hub that fleet views are made of, and policies on them and on clusters.
var (
	FleetViews     = schema.GroupVersionResource{Group: "proxy.open-cluster-management.io", Version: "v1alpha1", Resource: "fleetviews"}
	AccessPolicies = FleetViews.GroupVersion().WithResource("accesspolicies")
	ClusterSets    = schema.GroupVersionResource{Group: "cluster.open-cluster-management.io", Version: "v1beta2", Resource: "managedclustersets"}
)

// ViewEndpoints are the ways to a fleet view: the proxy API, and the hub's own
// kube-apiserver.
func (s *Suite) ViewEndpoints(view, token string) []Endpoint {
	direct := s.ThroughProxyAPI("@" + view)
	direct.BearerToken = token
	return []Endpoint{{"direct", direct}, {"aggregated", s.aggregated("fleetviews/"+view, token)}}
}

// ForEachViewEndpoint runs a scenario through each way to a fleet view, as the hub's
// user.
func (s *Suite) ForEachViewEndpoint(t *testing.T, view string, scenario func(t *testing.T, cfg *rest.Config)) {
	t.Helper()
	for _, endpoint := range s.ViewEndpoints(view, s.HubToken) {
		t.Run(endpoint.Name, func(t *testing.T) { scenario(t, endpoint.Cfg) })
	}
}

// HubObjects are the hub's objects of one kind.
func (s *Suite) HubObjects(t *testing.T, resource schema.GroupVersionResource) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(s.HubConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(resource)
}

// MakeOnHub makes an object without a namespace on the hub, for as long as the test runs.
func (s *Suite) MakeOnHub(t *testing.T, resource schema.GroupVersionResource, kind, name string, spec map[string]any) {
	t.Helper()
	objects := s.HubObjects(t, resource)
	_, err := objects.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = objects.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

// MakeView makes a FleetView for as long as the test runs, and waits until the proxy API
// knows it.
func (s *Suite) MakeView(t *testing.T, name string, spec map[string]any) {
	t.Helper()
	s.MakeOnHub(t, FleetViews, "FleetView", name, spec)
	s.AwaitView(t, name)
}

// AwaitView waits until the proxy API knows a view.
func (s *Suite) AwaitView(t *testing.T, name string) {
	t.Helper()
	for _, endpoint := range s.ViewEndpoints(name, s.HubToken) {
		Eventually(t, "view "+name+" at endpoint "+endpoint.Name, func() error {
			got, err := Ask(t.Context(), endpoint.Cfg, Request{Method: http.MethodGet, Path: "/version"})
			if err == nil && got.Code == http.StatusNotFound {
				err = fmt.Errorf("answered %d: %.300s", got.Code, got.Body)
			}
			return err
		})
	}
}

// Rule is a right to API resources.
func Rule(group, resources string, verbs []string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Fields(resources), Verbs: verbs, ResourceNames: names}
}

// proxyGroup is the group of the rights to clusters.
const proxyGroup = "clusterproxy.open-cluster-management.io"

// MayUseViews are the rights to use FleetViews, which are rights to no cluster.
func MayUseViews() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		Rule(FleetViews.Group, "fleetviews", []string{"get", "list"}),
		Rule(proxyGroup, "fleetviews/proxy", []string{"*"}),
	}
}

// MayReach are the rights to send requests with these verbs to clusters.
func MayReach(verbs []string, clusters ...string) rbacv1.PolicyRule {
	return Rule(proxyGroup, "clusters/proxy", verbs, clusters...)
}

// MayReachSet are the same rights for all clusters of a ManagedClusterSet.
func MayReachSet(verbs []string, sets ...string) rbacv1.PolicyRule {
	return Rule(proxyGroup, "clustersets/proxy", verbs, sets...)
}

// Verbs of users.
var (
	AllVerbs  = []string{"*"}
	ReadVerbs = []string{"get", "list", "watch"}
)

// MakeUser makes a service account of the hub with these rights there, for as long as the
// test runs, and returns its token. On managed clusters it may do nothing; see MayOn.
func (s *Suite) MakeUser(t *testing.T, name string, rules ...rbacv1.PolicyRule) (token string) {
	t.Helper()
	accounts := s.Hub.CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accounts.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	grant(t, s.Hub, name, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: "default"}, rules)
	made, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Status.Token
}

// MayOn gives a user that MakeUser made rights on a managed cluster, for as long as the
// test runs.
func (s *Suite) MayOn(t *testing.T, cluster, name string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	there := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "cluster:hub:system:serviceaccount:default:" + name, APIGroup: rbacv1.GroupName}
	grant(t, Clientset(t, s.Direct(cluster)), name, there, rules)
}

// grant makes a ClusterRole and its binding, both of that name.
func grant(t *testing.T, cs *kubernetes.Clientset, name string, to rbacv1.Subject, rules []rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: name}
	t.Cleanup(func() {
		_ = cs.RbacV1().ClusterRoleBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
		_ = cs.RbacV1().ClusterRoles().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	if _, err := cs.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cs.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{to},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
