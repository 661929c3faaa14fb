package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// remaining is what uninstalling leaves in the hub's namespace: the CAs, without
// which all agents would need new certificates after the next installation.
var remaining = []string{"secret/cluster-proxy-agent-signer", "secret/cluster-proxy-signer"}

// TestHelmTest runs the chart's own test. It disturbs nothing.
func TestHelmTest(t *testing.T) {
	needNodes(t)
	installed.Settle(t)
	if err := installed.Lab.Helm(t.Context(), "test", "cluster-proxy", "--kubeconfig="+installed.HubKubeconfig, "--namespace="+installed.Namespace, "--timeout=2m"); err != nil {
		t.Error(err)
	}
}

// left lists what is in a namespace of the hub besides what every namespace has.
func left(t *testing.T) []string {
	t.Helper()
	kubectl, env := installed.KubectlProgram("hub")
	cmd := exec.CommandContext(t.Context(), kubectl, "--kubeconfig="+installed.HubKubeconfig, "--namespace="+installed.Namespace, "get", "-o", "name",
		"deployments,replicasets,pods,services,secrets,configmaps,serviceaccounts,roles,rolebindings,leases,poddisruptionbudgets,networkpolicies,placements,managedclustersetbindings")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool {
		return name == "configmap/kube-root-ca.crt" || name == "serviceaccount/default"
	})
}

// TestUninstallLeavesTheCAOnly uninstalls the chart and installs it again. It
// disturbs everything: the addon is gone for a while.
func TestUninstallLeavesTheCAOnly(t *testing.T) {
	long.Test(t)
	needNodes(t)
	before, err := installed.Hub.CoreV1().Secrets(installed.Namespace).Get(t.Context(), "cluster-proxy-signer", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	installed.Uninstall(t)
	suite.Eventually(t, "nothing but the CA on the hub", func() error {
		if now := left(t); !slices.Equal(now, remaining) {
			return fmt.Errorf("there are %q, want %q", now, remaining)
		}
		works, err := installed.Works.WorkV1().ManifestWorks("").List(t.Context(), metav1.ListOptions{})
		if err == nil && len(works.Items) > 0 {
			err = fmt.Errorf("%d ManifestWorks are there", len(works.Items))
		}
		return err
	})
	roles, err := installed.Hub.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range roles.Items {
		if strings.Contains(role.Name, "cluster-proxy") {
			t.Errorf("ClusterRole %s is left", role.Name)
		}
	}
	installed.Reinstall(t)
	after, err := installed.Hub.CoreV1().Secrets(installed.Namespace).Get(t.Context(), "cluster-proxy-signer", metav1.GetOptions{})
	if err != nil || !bytes.Equal(before.Data["ca.crt"], after.Data["ca.crt"]) {
		t.Errorf("the hub CA is another one after a new installation, %v", err)
	}
}
