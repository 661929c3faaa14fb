package agentaddon

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// TestParseAccess wants no name to be bound that means something to a cluster without the hub.
func TestParseAccess(t *testing.T) {
	for text, wantError := range map[string]string{
		"": "",
		`{"users": ["jane", "system:serviceaccount:ci:deployer"], "groups": ["ops", "system:serviceaccounts:ci"], "clusterRole": "view"}`: "",
		`{"users": ["jane"]}`:                                         "ClusterRole",
		`{"users": ["jane"], "clusterRole": "a/b"}`:                   "ClusterRole",
		`{"users": [""], "clusterRole": "view"}`:                      "no name",
		`{"users": ["system:admin"], "clusterRole": "view"}`:          `"system:admin" means something else`,
		`{"groups": ["system:authenticated"], "clusterRole": "view"}`: "means something else",
		`{"groups": ["kubeadm:cluster-admins"], "clusterRole": "a"}`:  "means something else",
		`{"users": ["cluster:hub:x"], "clusterRole": "a"}`:            "means something else",
		`{"user": ["jane"], "clusterRole": "view"}`:                   `unknown field "user"`,
	} {
		if _, err := ParseAccess(text); (err == nil) != (wantError == "") || err != nil && !strings.Contains(err.Error(), wantError) {
			t.Errorf("%s: got error %v, want %q", text, err, wantError)
		}
	}
}

// TestAccessIsBound wants one binding, of names as they are on the cluster, and none without a name.
func TestAccessIsBound(t *testing.T) {
	hub := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{
		Name: impersonatorPrefix + identity.DefaultAgentNamespace, Annotations: map[string]string{clusterAnnotation: "uid-of-cluster1"},
	}}
	subject := func(kind, name string) rbacv1.Subject {
		return rbacv1.Subject{Kind: kind, APIGroup: rbacv1.GroupName, Name: name}
	}
	for name, c := range map[string]struct {
		access Access
		more   []client.Object
		want   []rbacv1.Subject
	}{
		"nobody": {access: Access{ClusterRole: "view"}},
		"names of the hub": {access: Access{Users: []string{"jane", "system:serviceaccount:ci:deployer"}, Groups: []string{"ops"}, ClusterRole: "view"},
			want: []rbacv1.Subject{subject("User", "jane"), subject("User", "cluster:hub:system:serviceaccount:ci:deployer"), subject("Group", "ops")}},
		"on the hub": {access: Access{Users: []string{"system:serviceaccount:ci:deployer"}, ClusterRole: "view"}, more: []client.Object{hub},
			want: []rbacv1.Subject{subject("User", "system:serviceaccount:ci:deployer")}},
	} {
		t.Run(name, func(t *testing.T) {
			_, objects, err := renderBy(t, func(addon *Addon) { addon.Access = c.access }, "cluster1", configuration(nil), nil, c.more...)
			if err != nil {
				t.Fatal(err)
			}
			var got []rbacv1.Subject
			for _, object := range objects {
				binding, ok := object.(*rbacv1.ClusterRoleBinding)
				if ok && strings.HasPrefix(binding.Name, "open-cluster-management:cluster-proxy:access:view:") {
					if want := (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}); binding.RoleRef != want {
						t.Errorf("bound is %v, want %v", binding.RoleRef, want)
					}
					got = slices.Concat(got, binding.Subjects)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("subjects (-want +got):\n%s", diff)
			}
		})
	}
}
