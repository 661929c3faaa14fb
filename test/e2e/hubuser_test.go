package e2e

import (
	"bytes"
	"context"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/ownerpolicy"
	"open-cluster-management.io/cluster-proxy/test/lab"
)

const (
	hubUser       = "e2e-hub-user"
	hubUserThere  = "cluster:hub:system:serviceaccount:default:" + hubUser
	hubUserGroups = "cluster:hub:system:serviceaccounts:default"
)

// makeHubUser makes a service account of the hub that may send everything to the
// managed clusters, where the name that it has there may do everything.
func (s *installed) makeHubUser(ctx context.Context) error {
	_, err := s.hub.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: hubUser}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	binding := func(role string, subject rbacv1.Subject) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: hubUser}, Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
	}
	if _, err := s.hub.RbacV1().ClusterRoleBindings().Create(ctx, binding("cluster-proxy-user",
		rbacv1.Subject{Kind: "ServiceAccount", Name: hubUser, Namespace: "default"}), metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, cluster := range s.clusters {
		cs, err := kubernetes.NewForConfig(s.lab.Managed[cluster].RESTConfig())
		if err != nil {
			return err
		}
		if _, err := cs.RbacV1().ClusterRoleBindings().Create(ctx, binding("e2e-admin",
			rbacv1.Subject{Kind: "User", Name: hubUserThere, APIGroup: rbacv1.GroupName}), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	token, err := s.hub.CoreV1().ServiceAccounts("default").CreateToken(ctx, hubUser, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	s.hubToken = token.Status.Token
	return nil
}

// TestManagedClusterKnowsTheHubUser finds the user of the hub in the managed
// cluster's audit log, and his token nowhere in it.
func TestManagedClusterKnowsTheHubUser(t *testing.T) {
	for _, cluster := range suite.clusters {
		for _, door := range suite.doors(cluster)[2:] {
			t.Run(cluster+"/"+door.name, func(t *testing.T) {
				id := uuid.NewString()
				r := request{method: http.MethodGet, path: "/api/v1/namespaces/default/pods", header: http.Header{"Audit-Id": {id}}}
				if got, err := ask(t.Context(), door.cfg, r); err != nil || got.Code != http.StatusOK {
					t.Fatalf("answer %d, %v: %.500s", got.Code, err, got.Body)
				}
				eventually(t, "the user in the audit log", func() error {
					events, err := auditEvents(cluster, id)
					if err != nil {
						return err
					}
					for _, event := range events {
						if seen := fmt.Sprint(event["impersonatedUser"]); strings.Contains(seen, hubUserThere) && strings.Contains(seen, hubUserGroups) {
							return nil
						}
					}
					return fmt.Errorf("%d events with the Audit-ID, none with the user: %v", len(events), events)
				})
				log, err := os.ReadFile(suite.auditLog[cluster])
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Contains(log, []byte(suite.hubToken)) {
					t.Error("the hub's token is in the managed cluster's audit log")
				}
			})
		}
	}
}

// TestOwnerCapsTheHub has the managed cluster's owner stop what the hub allows,
// by every door, while the agent runs.
func TestOwnerCapsTheHub(t *testing.T) {
	cluster := suite.clusters[0]
	owner := clientset(t, suite.direct(cluster)).CoreV1().ConfigMaps(suite.agentNamespace)
	remove := func() error {
		err := owner.Delete(context.Background(), ownerpolicy.ConfigMap, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	get := request{method: http.MethodGet, path: "/api/v1/namespaces/default/configmaps"}
	create := request{method: http.MethodPost, path: get.path + "?dryRun=All", header: content("application/json"), body: `{"metadata":{"name":"new"}}`}
	stream := request{method: http.MethodGet, path: "/api/v1/namespaces/default/pods/there-is-none/proxy/"}
	wait := func(what string, codes ...int) {
		t.Helper()
		for _, door := range suite.doors(cluster)[1:] {
			eventually(t, what+" at "+door.name, func() error {
				for i, r := range []request{get, create, stream} {
					got, err := ask(context.Background(), door.cfg, r) // in a cleanup the test has no context
					if err != nil {
						return err
					}
					if got.Code != codes[i] {
						return fmt.Errorf("%s %s is answered %d (%.300s), want %d", r.method, r.path, got.Code, got.Body, codes[i])
					}
				}
				return nil
			})
		}
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
		wait("no caps again", http.StatusOK, http.StatusCreated, http.StatusNotFound)
	})
	wait("no caps", http.StatusOK, http.StatusCreated, http.StatusNotFound)
	for _, step := range []struct {
		policy            string
		get, post, stream int
	}{
		{"readOnly: true", http.StatusOK, http.StatusForbidden, http.StatusForbidden},
		{"readOnly: perhaps", http.StatusForbidden, http.StatusForbidden, http.StatusForbidden},
		{"noStreams: true", http.StatusOK, http.StatusCreated, http.StatusForbidden},
	} {
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		if _, err := owner.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: ownerpolicy.ConfigMap}, Data: map[string]string{ownerpolicy.Key: step.policy},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		wait("policy "+step.policy, step.get, step.post, step.stream)
	}
}

// TestManyGroups has a user with 500 groups come by a client certificate of the
// hub. On the cluster he has all of them.
func TestManyGroups(t *testing.T) {
	cluster := suite.clusters[0]
	var groups []string
	for i := range 500 {
		groups = append(groups, fmt.Sprintf("e2e-group-%03d", i))
	}
	binding, err := suite.hub.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-groups"}, Subjects: []rbacv1.Subject{{Kind: "Group", Name: groups[499], APIGroup: rbacv1.GroupName}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-proxy-user"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = suite.hub.RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{})
	})
	cert, key, err := lab.UserCertificate(t.Context(), suite.hub, pkix.Name{CommonName: "e2e-many", Organization: groups})
	if err != nil {
		t.Fatal(err)
	}
	for _, door := range suite.doors(cluster)[2:] {
		t.Run(door.name, func(t *testing.T) {
			cfg := rest.CopyConfig(door.cfg)
			cfg.BearerToken, cfg.CertData, cfg.KeyData = "", cert, key
			r := request{method: http.MethodPost, path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", header: content("application/json"),
				body: `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`}
			var review struct {
				Status authenticationv1.SelfSubjectReviewStatus
			}
			eventually(t, "the hub to know of the group's right", func() error {
				got, err := ask(t.Context(), cfg, r)
				if err != nil {
					return err
				}
				if got.Code != http.StatusCreated {
					return fmt.Errorf("answered %d %.300s", got.Code, got.Body)
				}
				return json.Unmarshal([]byte(got.Body), &review)
			})
			want := append(slices.Clone(groups), "system:authenticated")
			got := review.Status.UserInfo
			slices.Sort(got.Groups)
			if got.Username != "e2e-many" || !slices.Equal(got.Groups, want) {
				t.Errorf("the cluster knows %q with %d groups, want %d", got.Username, len(got.Groups), len(want))
			}
		})
	}
}
