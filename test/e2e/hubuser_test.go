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
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/ownerpolicy"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/lab"
)

// TestManagedClusterKnowsTheHubUser finds the user of the hub in the managed
// cluster's audit log, and the user's token nowhere in it. It disturbs nothing: it
// only reads.
func TestManagedClusterKnowsTheHubUser(t *testing.T) {
	installed.NeedLab(t, "reads the kube-apiservers' audit logs")
	for _, cluster := range installed.Clusters {
		for _, endpoint := range installed.Endpoints(cluster)[2:] {
			t.Run(cluster+"/"+endpoint.Name, func(t *testing.T) {
				id := uuid.NewString()
				r := suite.Request{Method: http.MethodGet, Path: "/api/v1/namespaces/default/pods", Header: http.Header{"Audit-Id": {id}}}
				if got, err := suite.Ask(t.Context(), endpoint.Cfg, r); err != nil || got.Code != http.StatusOK {
					t.Fatalf("answer %d, %v: %.500s; want 200", got.Code, err, got.Body)
				}
				suite.Eventually(t, "the user in the audit log", func() error {
					events, err := auditEvents(cluster, id)
					if err != nil {
						return err
					}
					for _, event := range events {
						if seen := fmt.Sprint(event["impersonatedUser"]); strings.Contains(seen, suite.HubUserThere) && strings.Contains(seen, suite.HubUserGroups) {
							return nil
						}
					}
					return fmt.Errorf("%d events with the Audit-ID, none with the user: %v", len(events), events)
				})
				log, err := os.ReadFile(installed.AuditLog[cluster])
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Contains(log, []byte(installed.HubToken)) {
					t.Error("the hub's token is in the managed cluster's audit log")
				}
			})
		}
	}
}

// TestOwnerCapsTheHub forbids by the owner policy of a managed cluster what the hub
// allows, at every endpoint, while the agent runs. It disturbs the users of one
// cluster, who are refused for a while.
func TestOwnerCapsTheHub(t *testing.T) {
	cluster := installed.Clusters[0]
	owner := suite.Clientset(t, installed.Direct(cluster)).CoreV1().ConfigMaps(installed.AgentNamespace)
	remove := func() error {
		err := owner.Delete(context.Background(), ownerpolicy.ConfigMap, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	get := suite.Request{Method: http.MethodGet, Path: "/api/v1/namespaces/default/configmaps"}
	create := suite.Request{Method: http.MethodPost, Path: get.Path + "?dryRun=All", Header: suite.Content("application/json"), Body: `{"metadata":{"name":"new"}}`}
	stream := suite.Request{Method: http.MethodGet, Path: "/api/v1/namespaces/default/pods/there-is-none/proxy/"}
	wait := func(what string, codes ...int) {
		t.Helper()
		for _, endpoint := range installed.Endpoints(cluster)[1:] {
			suite.Eventually(t, what+" at "+endpoint.Name, func() error {
				for i, r := range []suite.Request{get, create, stream} {
					got, err := suite.Ask(context.Background(), endpoint.Cfg, r) // in a cleanup the test has no context
					if err != nil {
						return err
					}
					if got.Code != codes[i] {
						return fmt.Errorf("%s %s is answered %d (%.300s), want %d", r.Method, r.Path, got.Code, got.Body, codes[i])
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

// TestManyGroups sends requests as a user with 500 groups, by a client certificate
// of the hub. On the cluster the user has all of them. It disturbs nothing: it
// removes the binding that it makes.
func TestManyGroups(t *testing.T) {
	cluster := installed.Clusters[0]
	var groups []string
	for i := range 500 {
		groups = append(groups, fmt.Sprintf("e2e-group-%03d", i))
	}
	binding, err := installed.Hub.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-groups"}, Subjects: []rbacv1.Subject{{Kind: "Group", Name: groups[499], APIGroup: rbacv1.GroupName}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-proxy-user"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = installed.Hub.RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{})
	})
	cert, key, err := lab.UserCertificate(t.Context(), installed.Hub, pkix.Name{CommonName: "e2e-many", Organization: groups})
	if err != nil {
		t.Fatal(err)
	}
	for _, endpoint := range installed.Endpoints(cluster)[2:] {
		t.Run(endpoint.Name, func(t *testing.T) {
			cfg := rest.CopyConfig(endpoint.Cfg)
			cfg.BearerToken, cfg.CertData, cfg.KeyData = "", cert, key
			r := suite.Request{Method: http.MethodPost, Path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", Header: suite.Content("application/json"),
				Body: `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`}
			var review struct {
				Status authenticationv1.SelfSubjectReviewStatus
			}
			suite.Eventually(t, "the hub to know of the group's right", func() error {
				got, err := suite.Ask(t.Context(), cfg, r)
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
