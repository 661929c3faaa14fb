//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/bench/ground"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/lab"
)

// TestMoveThereAndBack moves clusters from OCM's own cluster-proxy to this one by
// helm upgrade, and back by helm rollback, while clients are at work and with
// nothing done by hand. The hub is one of the clusters. A table has what
// clients notice, in the file that $E2E_MOVE names. It disturbs everything: the addon is
// replaced, and back.
func TestMoveThereAndBack(t *testing.T) {
	needNodes(t)
	file := os.Getenv("E2E_MOVE")
	if file == "" {
		t.Skip("builds OCM's own cluster-proxy: make e2e-move")
	}
	upstream, err := lab.BuildUpstream(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(t.TempDir(), "upstream.tar")
	if err := upstream.Pack(image); err != nil {
		t.Fatal(err)
	}
	if err := installed.Lab.LoadImage(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	// Upstream's pods do not meet the profile.
	relabel(t, `null`)
	removeAll(t)
	t.Cleanup(func() {
		removeAll(t)
		installed.RemoveHub(t, localCluster)
		leaveHub(t)
		relabel(t, `"restricted"`)
		installed.Reinstall(t)
	})
	if err := errors.Join(installed.Lab.JoinHub(t.Context(), localCluster), installed.AddHub(t.Context(), localCluster)); err != nil {
		t.Fatal(err)
	}
	var rows []moveRow
	for _, replicas := range []int{1, 2} {
		t.Run(fmt.Sprint("replicas=", replicas), func(t *testing.T) { rows = append(rows, moveThereAndBack(t, upstream, replicas)...) })
	}
	table := moveTable(rows)
	t.Log("\n" + table)
	if err := ground.Record(file, table); err != nil {
		t.Error(err)
	}
}

// moveLimits bound how long new requests may fail, by the number of replicas.
var moveLimits = map[int]time.Duration{1: 15 * time.Second, 2: 5 * time.Second}

// backLimit is that of the way back, in which upstream's own release decides: it ends
// every proxy server before it starts the first of its own, and the kubelets of two busy cores.
const backLimit = 3 * time.Minute

func moveThereAndBack(t *testing.T, upstream lab.Upstream, replicas int) (rows []moveRow) {
	removeAll(t)
	m := installUpstream(t, upstream, replicas)
	ca := installed.MustHubSecret(t, suite.HubSigner).Data["ca.crt"]
	rows = append(rows, m.watched(t, "to this release", moveLimits[replicas], func() {
		helm(t, "upgrade", "cluster-proxy", "../../charts/cluster-proxy", "--reuse-values", "--set=tag=lab",
			"--set=exposedServices[0].namespace=default", "--set=exposedServices[0].service=web",
			"--set=exposedServices[1].namespace=default", "--set=exposedServices[1].service=kubernetes", "--set=exposedServices[1].protocol=https")
		for _, cluster := range installed.Clusters {
			suite.Eventually(t, cluster+"'s agents of this release", func() error { return m.agentHas(cluster, ":lab") })
		}
	})...)
	m.wantNoLeftovers(t)
	m.wantConditions(t)
	if now := installed.MustHubSecret(t, suite.HubSigner).Data["ca.crt"]; !bytes.Equal(now, ca) {
		t.Error("upstream's CA was not taken over")
	}
	rows = append(rows, m.watched(t, "back", backLimit, func() {
		helm(t, "rollback", "cluster-proxy", "1")
		for _, cluster := range installed.Clusters {
			suite.Eventually(t, cluster+"'s agents of upstream", func() error { return m.agentHas(cluster, ":"+lab.UpstreamVersion) })
		}
	})...)
	for _, cluster := range installed.Clusters {
		m.wantNoSecret(t, cluster, identity.AgentCertificateSecret)
	}
	return rows
}

// wantNoSecret waits until an agent's Secret is gone.
func (m *mover) wantNoSecret(t *testing.T, cluster, name string) {
	t.Helper()
	managed := suite.Clientset(t, installed.Direct(cluster))
	suite.Eventually(t, "no Secret "+name+" on "+cluster, func() error {
		_, err := managed.CoreV1().Secrets(m.namespace[cluster]).Get(t.Context(), name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
}

// mover is a lab in which OCM's own cluster-proxy was installed.
type mover struct {
	replicas  int
	namespace map[string]string // of the agent, by cluster
}

func helm(t *testing.T, args ...string) {
	t.Helper()
	if err := installed.Lab.Helm(context.Background(), append(args, "--kubeconfig="+installed.HubKubeconfig, "--namespace="+installed.Namespace)...); err != nil {
		t.Fatal(err)
	}
}

// relabel sets how strict Pod Security is in the addon's namespace on the hub.
func relabel(t *testing.T, level string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":%s}}}`, level)
	if _, err := installed.Hub.CoreV1().Namespaces().Patch(context.Background(), installed.Namespace, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}

// removeAll removes whatever is installed, with the CAs and definitions.
func removeAll(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	for _, cluster := range installed.Clusters {
		_ = installed.Addons.AddonV1alpha1().AddOnDeploymentConfigs(cluster).Delete(ctx, "move", metav1.DeleteOptions{})
	}
	installed.Uninstall(t)
	if err := installed.Hub.CoreV1().Secrets(installed.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	for _, crd := range []string{"managedproxyconfigurations", "managedproxyserviceresolvers", "fleetviews", "karmadaresourceregistries", "passes"} {
		err := installed.Hub.RESTClient().Delete().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + crd + ".proxy.open-cluster-management.io").Do(ctx).Error()
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	}
	for _, name := range []string{"cluster-proxy", "cluster-proxy-server"} {
		_ = installed.Hub.CoreV1().ServiceAccounts(installed.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	}
	suite.Eventually(t, "upstream's Deployment gone", func() error {
		if _, err := installed.Hub.AppsV1().Deployments(installed.Namespace).Get(ctx, "cluster-proxy", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %v", err)
		}
		return nil
	})
}

// installUpstream installs upstream's chart and has one cluster use upstream's
// customized variables.
func installUpstream(t *testing.T, upstream lab.Upstream, replicas int) *mover {
	t.Helper()
	m := &mover{replicas: replicas, namespace: map[string]string{}}
	values := []string{"proxyServer.entrypointLoadBalancer=true", "enableServiceProxy=true", "userServer.enabled=true", fmt.Sprint("replicas=", replicas)}
	if err := installed.Lab.InstallChart(t.Context(), "cluster-proxy", installed.Namespace, upstream.Chart(), values...); err != nil {
		t.Fatal(err)
	}
	for i, cluster := range installed.Clusters {
		m.namespace[cluster] = identity.DefaultAgentNamespace
		if i == 0 {
			// The API server's default, since the AddOnDeploymentConfig names none.
			m.namespace[cluster] = "open-cluster-management-agent-addon"
			m.configure(t, cluster)
		}
		suite.Eventually(t, cluster+" Available with upstream's agent", func() error {
			return errors.Join(installed.AddonAvailable(t.Context(), cluster), m.agentHas(cluster, ":"+lab.UpstreamVersion))
		})
	}
	m.findEndpoints(t)
	return m
}

func (m *mover) configure(t *testing.T, cluster string) {
	t.Helper()
	config := &addonv1alpha1.AddOnDeploymentConfig{ObjectMeta: metav1.ObjectMeta{Name: "move"}, Spec: addonv1alpha1.AddOnDeploymentConfigSpec{
		CustomizedVariables: []addonv1alpha1.CustomizedVariable{{Name: "serviceDomain", Value: "svc.cluster.local"}, {Name: "enableImpersonation", Value: "true"}},
	}}
	if _, err := installed.Addons.AddonV1alpha1().AddOnDeploymentConfigs(cluster).Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := fmt.Appendf(nil, `{"spec":{"configs":[{"group":"addon.open-cluster-management.io","resource":"addondeploymentconfigs","namespace":%q,"name":"move"}]}}`, cluster)
	suite.Eventually(t, "an AddOnDeploymentConfig for "+cluster, func() error {
		_, err := installed.Addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Patch(t.Context(), identity.AddonName, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// agentHas wants the agent of a cluster rolled out with an image, where it was.
func (m *mover) agentHas(cluster, suffix string) error {
	cs, err := kubernetes.NewForConfig(installed.Direct(cluster))
	if err != nil {
		return err
	}
	deployment, err := cs.AppsV1().Deployments(m.namespace[cluster]).Get(context.Background(), "cluster-proxy-proxy-agent", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if image := deployment.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, suffix) {
		return fmt.Errorf("the image is %s", image)
	}
	return suite.RolledOut(deployment)
}

// findEndpoints finds those of upstream, which has no aggregated API.
func (m *mover) findEndpoints(t *testing.T) {
	t.Helper()
	suite.Eventually(t, "upstream's endpoints", func() (err error) {
		if installed.ProxyServer, err = installed.Lab.ServiceAddress("hub", installed.Namespace, "proxy-entrypoint", 8090); err != nil {
			return err
		}
		if installed.ProxyAPI, err = installed.Lab.ServiceAddress("hub", installed.Namespace, "cluster-proxy-addon-user", 9092); err != nil {
			return err
		}
		secret, err := installed.Hub.CoreV1().Secrets(installed.Namespace).Get(context.Background(), "proxy-server-ca", metav1.GetOptions{})
		if err == nil {
			installed.HubCA = secret.Data["ca.crt"]
		}
		return err
	})
	for _, cluster := range installed.Clusters {
		suite.Eventually(t, cluster+" reachable", func() error {
			limited, cancel := context.WithTimeout(t.Context(), moveRequestLimit)
			defer cancel()
			return suite.Once(limited, installed.ThroughProxyAPI(cluster))
		})
	}
}

// wantNoLeftovers wants nothing of upstream's that grants a right or holds a key.
func (m *mover) wantNoLeftovers(t *testing.T) {
	t.Helper()
	for _, cluster := range installed.Clusters {
		m.wantNoSecret(t, cluster, "cluster-proxy-open-cluster-management.io-proxy-agent-signer-client-cert")
		m.wantNoSecret(t, cluster, "cluster-proxy-hub-kubeconfig")
	}
	ctx := t.Context()
	suite.Eventually(t, "no leftovers of upstream", func() error {
		var left []string
		note := func(what string, err error) {
			if !apierrors.IsNotFound(err) {
				left = append(left, fmt.Sprint(what, ": ", err))
			}
		}
		_, err := installed.Hub.RbacV1().ClusterRoles().Get(ctx, "cluster-proxy-addon-agent-tokenreview", metav1.GetOptions{})
		note("ClusterRole", err)
		_, err = installed.Hub.RbacV1().ClusterRoleBindings().Get(ctx, "cluster-proxy-addon-agent-tokenreview", metav1.GetOptions{})
		note("ClusterRoleBinding", err)
		_, err = installed.Hub.CoreV1().Secrets(installed.Namespace).Get(ctx, "cluster-proxy-service-proxy-server-cert", metav1.GetOptions{})
		note("Secret", err)
		for _, cluster := range installed.Clusters {
			_, err = installed.Hub.RbacV1().Roles(cluster).Get(ctx, "cluster-proxy-addon-agent", metav1.GetOptions{})
			note("Role of "+cluster, err)
			_, err = installed.Hub.RbacV1().RoleBindings(cluster).Get(ctx, "cluster-proxy-addon-agent", metav1.GetOptions{})
			note("RoleBinding of "+cluster, err)
			managed := suite.Clientset(t, installed.Direct(cluster))
			_, err = managed.RbacV1().ClusterRoles().Get(ctx, "cluster-proxy-addon-agent-impersonator", metav1.GetOptions{})
			note("ClusterRole on "+cluster, err)
			_, err = managed.CoreV1().Services(m.namespace[cluster]).Get(ctx, cluster, metav1.GetOptions{})
			note("Service on "+cluster, err)
		}
		if len(left) > 0 {
			return errors.New(strings.Join(left, "; "))
		}
		return nil
	})
	role, err := installed.Hub.RbacV1().ClusterRoles().Get(ctx, "open-cluster-management:cluster-proxy:addon-manager", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range role.Rules {
		if slices.Contains(rule.Verbs, "*") {
			t.Errorf("upstream's rights are left: %v", rule)
		}
	}
}

// wantConditions wants the cluster with upstream's variables to be told that they
// mean nothing.
func (m *mover) wantConditions(t *testing.T) {
	t.Helper()
	addon, err := installed.Addons.AddonV1alpha1().ManagedClusterAddOns(installed.Clusters[0]).Get(t.Context(), identity.AddonName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	condition := apimeta.FindStatusCondition(addon.Status.Conditions, "VariablesIgnored")
	if condition == nil || condition.Status != metav1.ConditionTrue || !strings.Contains(condition.Message, "serviceDomain") {
		t.Errorf("%s: the condition is %v, want one that is true and names serviceDomain", installed.Clusters[0], condition)
	}
	list, err := installed.Hub.CoreV1().Events(installed.Clusters[0]).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return e.Reason == "VariablesIgnored" }) {
		t.Errorf("%s: no event says which variables are ignored", installed.Clusters[0])
	}
}

// watched calls do while clients are at work, waits until both kinds of them are
// served again, and compares the time for which their requests failed with limit.
func (m *mover) watched(t *testing.T, way string, limit time.Duration, do func()) (rows []moveRow) {
	t.Helper()
	var all []*moveClient
	for _, cluster := range installed.Clusters {
		all = append(all, startMoveClients(t, cluster)...)
	}
	began := time.Now()
	do()
	for _, c := range all {
		c.waitCalm(t)
	}
	for _, c := range all {
		row := c.stop(way, m.replicas, began)
		rows = append(rows, row)
		if row.lost > limit {
			t.Errorf("%s, %s, %s: new requests failed for %s, more than %s: %q", way, row.cluster, row.client, row.lost, limit, row.errors)
		}
	}
	t.Log("\n" + moveTable(rows))
	return rows
}

// heard reads a watch's event as the version that it brings.
func heard(raw json.RawMessage) (string, error) {
	var event struct {
		Type   string
		Object metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal(raw, &event); err != nil || event.Type == "ERROR" {
		return "", fmt.Errorf("the watch says %.200s, %v", raw, err)
	}
	return event.Object.ResourceVersion, nil
}
