package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

const localCluster = "local-cluster"

// TestHubIsItsOwnCluster has the hub join itself. Its users are themselves there,
// by what the cluster is and not by what it is called. It disturbs the hub, which is a
// managed cluster for a while.
func TestHubIsItsOwnCluster(t *testing.T) {
	long.Test(t)
	releaseOnNodes(t)
	installed.NeedLab(t, "has the hub join itself")
	if err := installed.Lab.JoinHub(t.Context(), localCluster); err != nil {
		t.Fatal(err)
	}
	left := false
	leave := func(t *testing.T) {
		if !left {
			left = true
			leaveHub(t)
		}
	}
	t.Cleanup(func() { leave(t) })
	suite.Eventually(t, localCluster+" Available", func() error { return installed.AddonAvailable(t.Context(), localCluster) })
	labelAsLocal(t, installed.Clusters[0])
	account := "system:serviceaccount:default:" + suite.HubUser
	for _, endpoint := range localEndpoints(localCluster) {
		hubUserIs(t, endpoint, account, "system:serviceaccounts:default")
	}
	awaitOwnAgents(t)
	for name, endpoint := range localEndpoints(localCluster) {
		t.Run(name, func(t *testing.T) {
			hubUserIs(t, endpoint, account, "system:serviceaccounts:default")
			testRightsOfTheHub(t, endpoint)
			testNoLoop(t, endpoint)
		})
	}
	// The label says so, but it is another cluster.
	for name, endpoint := range localEndpoints(installed.Clusters[0]) {
		t.Run("label/"+name, func(t *testing.T) { hubUserIs(t, endpoint, suite.HubUserThere, suite.HubUserGroups) })
	}
	t.Run("administrator", func(t *testing.T) {
		admin := installed.HubConfig()
		admin.Host += "/apis/clusterproxy.open-cluster-management.io/v1alpha1/clusters/" + localCluster + "/proxy"
		hubUserIs(t, admin, "admin", "system:masters")
	})
	t.Run("restarts", testOwnAgentRestarts)
	if onNodes {
		t.Run("uninstall", func(t *testing.T) {
			installed.Uninstall(t)
			suite.Eventually(t, "no agent on the hub", noAgentOnTheHub)
			leave(t) // a hub that is its own cluster without the addon leaves nothing either
			installed.Reinstall(t)
		})
		return
	}
}

// awaitOwnAgents waits until the hub's own agents of before it was known as the hub's
// are gone. While they serve, users have the names there that they have on other clusters.
func awaitOwnAgents(t *testing.T) {
	t.Helper()
	suite.Eventually(t, "no more agents of before the hub was known", func() error {
		deployments, err := installed.Hub.AppsV1().Deployments(installed.AgentNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range deployments.Items {
			err = errors.Join(err, suite.RolledOut(&deployments.Items[i]))
		}
		pods, err1 := installed.Hub.CoreV1().Pods(installed.AgentNamespace).List(t.Context(), metav1.ListOptions{})
		if err1 != nil {
			return err1
		}
		for _, pod := range pods.Items {
			if pod.DeletionTimestamp != nil {
				err = errors.Join(err, fmt.Errorf("pod %s is ending", pod.Name))
			}
		}
		if err != nil || installed.Lab.Nodes() != nil {
			return err
		}
		return installed.Lab.PodsEnded(t.Context(), "hub") // whose pods may be gone from the API
	})
}

// localEndpoints are those by which a service account of the hub reaches a cluster.
func localEndpoints(cluster string) map[string]*rest.Config {
	direct := installed.ThroughProxyAPI(cluster)
	direct.BearerToken = installed.HubToken
	hub := installed.HubConfig()
	return map[string]*rest.Config{
		"proxy-api": direct,
		"aggregated": {
			Host:        hub.Host + "/apis/clusterproxy.open-cluster-management.io/v1alpha1/clusters/" + cluster + "/proxy",
			BearerToken: installed.HubToken, TLSClientConfig: rest.TLSClientConfig{CAFile: hub.CAFile, CAData: hub.CAData}, QPS: -1,
		},
	}
}

// hubUserIs asks a cluster by one endpoint who the user is there.
func hubUserIs(t *testing.T, endpoint *rest.Config, name, group string) {
	t.Helper()
	r := suite.Request{Method: http.MethodPost, Path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", Header: suite.Content("application/json"),
		Body: `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`}
	suite.Eventually(t, "the user to be "+name, func() error {
		got, err := suite.Ask(t.Context(), endpoint, r)
		if err != nil || got.Code != http.StatusCreated {
			return fmt.Errorf("answer %d, %v: %.300s", got.Code, err, got.Body)
		}
		var review struct { // times are not as they were, see ask
			Status authenticationv1.SelfSubjectReviewStatus
		}
		if err := json.Unmarshal([]byte(got.Body), &review); err != nil {
			return err
		}
		if who := review.Status.UserInfo; who.Username != name || !slices.Contains(who.Groups, group) {
			return fmt.Errorf("it is %q in groups %q, want group %q", who.Username, who.Groups, group)
		}
		return nil
	})
}

// testRightsOfTheHub gives the account a right on the hub by its own name there.
func testRightsOfTheHub(t *testing.T, endpoint *rest.Config) {
	namespace := suite.Scratch(t, installed.Hub)
	get := suite.Request{Method: http.MethodGet, Path: "/api/v1/namespaces/" + namespace + "/configmaps"}
	if got, err := suite.Ask(t.Context(), endpoint, get); err != nil || got.Code != http.StatusForbidden {
		t.Fatalf("without a right the answer is %d, %v: %.300s", got.Code, err, got.Body)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: suite.HubUser}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: suite.HubUser}},
	}
	if _, err := installed.Hub.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	suite.Eventually(t, "the right to be there", func() error {
		got, err := suite.Ask(t.Context(), endpoint, get)
		if err == nil && got.Code != http.StatusOK {
			err = fmt.Errorf("answer %d: %.300s", got.Code, got.Body)
		}
		return err
	})
}

// testNoLoop sends a request that would come back to the proxy API again and again.
func testNoLoop(t *testing.T, endpoint *rest.Config) {
	again := "/apis/clusterproxy.open-cluster-management.io/v1alpha1/clusters/" + localCluster + "/proxy"
	got, err := suite.Ask(t.Context(), endpoint, suite.Request{Method: http.MethodGet, Path: strings.Repeat(again, 20) + "/version"})
	if err != nil || got.Code != http.StatusLoopDetected {
		t.Errorf("a request that goes round is answered %d, %v: %.300s", got.Code, err, got.Body)
	}
	// An answer of the proxy API itself is no loop.
	got, err = suite.Ask(t.Context(), endpoint, suite.Request{Method: http.MethodGet, Path: strings.TrimSuffix(again, "/"+localCluster+"/proxy")})
	if err != nil || got.Code != http.StatusOK || !strings.Contains(got.Body, localCluster) {
		t.Errorf("the list of clusters is answered %d, %v: %.300s", got.Code, err, got.Body)
	}
}

// labelAsLocal gives a cluster the label that OCM's users know a hub's own cluster by.
func labelAsLocal(t *testing.T, cluster string) {
	t.Helper()
	patch := []byte(`{"metadata":{"labels":{"local-cluster":"true"}}}`)
	if _, err := installed.ManagedClusters.Patch(t.Context(), cluster, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		patch := []byte(`{"metadata":{"labels":{"local-cluster":null}}}`)
		if _, err := installed.ManagedClusters.Patch(context.Background(), cluster, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// testOwnAgentRestarts takes the hub's own agent away while it is used. Nothing of
// the hub may wait for it.
func testOwnAgentRestarts(t *testing.T) {
	agents := metav1.ListOptions{LabelSelector: "proxy.open-cluster-management.io/component-name=proxy-agent"}
	if err := installed.Hub.CoreV1().Pods(installed.AgentNamespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, agents); err != nil {
		t.Fatal(err)
	}
	// The aggregated API, and with it the hub's discovery and namespaces, goes on.
	hub := installed.HubConfig()
	list := suite.Request{Method: http.MethodGet, Path: "/apis/clusterproxy.open-cluster-management.io/v1alpha1/clusters"}
	for range 20 {
		if got, err := suite.Ask(t.Context(), hub, list); err != nil || got.Code != http.StatusOK {
			t.Fatalf("while the hub's own agent restarts, the aggregated API answers %d, %v: %.300s", got.Code, err, got.Body)
		}
	}
	for name, endpoint := range localEndpoints(localCluster) {
		t.Run(name, func(t *testing.T) {
			hubUserIs(t, endpoint, "system:serviceaccount:default:"+suite.HubUser, "system:serviceaccounts:default")
		})
	}
}

func noAgentOnTheHub() error {
	pods, err := installed.Hub.CoreV1().Pods(installed.AgentNamespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	roles, err := installed.Hub.RbacV1().ClusterRoles().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, role := range roles.Items {
		if strings.Contains(role.Name, identity.AddonName) && strings.Contains(role.Name, "impersonator") {
			err = errors.Join(err, fmt.Errorf("ClusterRole %s is there", role.Name))
		}
	}
	if len(pods.Items) > 0 {
		err = errors.Join(err, fmt.Errorf("%d pods are there", len(pods.Items)))
	}
	return err
}

func leaveHub(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*suite.Timeout)
	defer cancel()
	if err := installed.Lab.LeaveHub(ctx); err != nil {
		t.Error(err)
	}
	suite.Eventually(t, "no agent on the hub", noAgentOnTheHub)
}
