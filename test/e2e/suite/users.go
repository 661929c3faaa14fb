package suite

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// The hub's user: a service account of namespace default, the name that it has on
// managed clusters, and one of its groups there.
const (
	HubUser       = "e2e-hub-user"
	HubUserThere  = "cluster:hub:system:serviceaccount:default:" + HubUser
	HubUserGroups = "cluster:hub:system:serviceaccounts:default"
)

// admin and viewer are users of each managed cluster.
const (
	admin  = "e2e-admin"
	viewer = "e2e-viewer"
)

// makeHubUser makes a service account of the hub that may send everything to the
// managed clusters, where the name that it has there may do everything.
func (s *Suite) makeHubUser(ctx context.Context) error {
	_, err := s.Hub.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: HubUser}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	binding := func(role string, subject rbacv1.Subject) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: HubUser}, Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
	}
	if _, err := s.Hub.RbacV1().ClusterRoleBindings().Create(ctx, binding("cluster-proxy-user",
		rbacv1.Subject{Kind: "ServiceAccount", Name: HubUser, Namespace: "default"}), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	for _, cluster := range s.Clusters {
		cs, err := kubernetes.NewForConfig(s.AdminConfig(cluster))
		if err != nil {
			return err
		}
		if _, err := cs.RbacV1().ClusterRoleBindings().Create(ctx, binding(admin,
			rbacv1.Subject{Kind: "User", Name: HubUserThere, APIGroup: rbacv1.GroupName}), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	token, err := s.Hub.CoreV1().ServiceAccounts("default").CreateToken(ctx, HubUser, lastingToken(), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	s.HubToken = token.Status.Token
	return nil
}

// lastingToken asks for a token that a soak does not outlive.
func lastingToken() *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](7 * 24 * 60 * 60)}}
}

// makeUsers makes an administrator and a viewer of pods on a managed cluster.
// Their tokens mean something there and nowhere else.
func (s *Suite) makeUsers(ctx context.Context, cluster string) error {
	cs, err := kubernetes.NewForConfig(s.AdminConfig(cluster))
	if err != nil {
		return err
	}
	for user, tokens := range map[string]map[string]string{admin: s.AdminToken, viewer: s.ViewerToken} {
		rules := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}, {NonResourceURLs: []string{"*"}, Verbs: []string{"*"}}}
		if user == viewer {
			rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}}}
		}
		meta := metav1.ObjectMeta{Name: user, Namespace: "default"}
		_, err1 := cs.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
		_, err2 := cs.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}, metav1.CreateOptions{})
		_, err3 := cs.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: user, Namespace: "default"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		}, metav1.CreateOptions{})
		for _, err := range []error{err1, err2, err3} {
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("making user %q on %s: %w", user, cluster, err)
			}
		}
		token, err := cs.CoreV1().ServiceAccounts("default").CreateToken(ctx, user, lastingToken(), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("making a token for %q on %s: %w", user, cluster, err)
		}
		tokens[cluster] = token.Status.Token
	}
	return nil
}

// removeUsers removes what makeUsers and makeHubUser made. It prints what
// cannot be removed.
func (s *Suite) removeUsers() {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	report := func(err error) {
		if err != nil && !apierrors.IsNotFound(err) {
			fmt.Fprintln(os.Stderr, "removing the suite's users:", err)
		}
	}
	if s.Hub == nil {
		return
	}
	report(s.Hub.CoreV1().ServiceAccounts("default").Delete(ctx, HubUser, metav1.DeleteOptions{}))
	report(s.Hub.RbacV1().ClusterRoleBindings().Delete(ctx, HubUser, metav1.DeleteOptions{}))
	for _, cluster := range s.Clusters {
		cs, err := kubernetes.NewForConfig(s.AdminConfig(cluster))
		if err != nil {
			report(err)
			continue
		}
		report(cs.RbacV1().ClusterRoleBindings().Delete(ctx, HubUser, metav1.DeleteOptions{}))
		removeUsersOf(ctx, cs, report)
	}
}

// removeUsersOf removes what makeUsers made on a cluster.
func removeUsersOf(ctx context.Context, cluster kubernetes.Interface, report func(error)) {
	for _, user := range []string{admin, viewer} {
		report(cluster.CoreV1().ServiceAccounts("default").Delete(ctx, user, metav1.DeleteOptions{}))
		report(cluster.RbacV1().ClusterRoles().Delete(ctx, user, metav1.DeleteOptions{}))
		report(cluster.RbacV1().ClusterRoleBindings().Delete(ctx, user, metav1.DeleteOptions{}))
	}
}

// AddHub makes the hub one of the clusters, with users of its own. It has joined itself
// under that name.
func (s *Suite) AddHub(ctx context.Context, name string) error {
	s.Clusters, s.admin[name] = append(s.Clusters, name), s.hub
	return s.makeUsers(ctx, name)
}

// RemoveHub undoes AddHub.
func (s *Suite) RemoveHub(t *testing.T, name string) {
	t.Helper()
	s.Clusters = slices.DeleteFunc(s.Clusters, func(cluster string) bool { return cluster == name })
	removeUsersOf(context.Background(), s.Hub, func(err error) {
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}
