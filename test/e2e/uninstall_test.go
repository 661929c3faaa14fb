package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
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

// TestMoveFromUpstream has the chart take over what upstream's chart and addon
// manager made. It disturbs everything: the addon is gone for a while, and its
// CAs are new.
func TestMoveFromUpstream(t *testing.T) {
	needNodes(t)
	installed.Uninstall(t)
	for _, name := range remaining {
		_ = installed.Hub.CoreV1().Secrets(installed.Namespace).Delete(t.Context(), strings.TrimPrefix(name, "secret/"), metav1.DeleteOptions{})
	}
	if err := installed.Lab.InstallChart(t.Context(), "cluster-proxy", installed.Namespace, "testdata/upstream"); err != nil {
		t.Fatal(err)
	}
	configuration, err := installed.Configuration.Get(t.Context(), identity.AddonName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owner := metav1.OwnerReference{APIVersion: configuration.GetAPIVersion(), Kind: configuration.GetKind(), Name: configuration.GetName(), UID: configuration.GetUID()}
	ca := upstreamSecrets(t, owner)
	apply(t, "made.yaml", "NAMESPACE", installed.Namespace, "UID", string(configuration.GetUID()))
	for _, cluster := range installed.Clusters {
		apply(t, "agent.yaml", "CLUSTER", cluster)
		managed := suite.Clientset(t, installed.Direct(cluster))
		suite.Eventually(t, "upstream's agent on "+cluster, func() error {
			deployment, err := managed.AppsV1().Deployments(installed.AgentNamespace).Get(t.Context(), "cluster-proxy-proxy-agent", metav1.GetOptions{})
			if err != nil {
				return err
			}
			return suite.RolledOut(deployment)
		})
	}
	installed.Reinstall(t)
	for _, cluster := range installed.Clusters {
		installed.AgentsHaveImage(t, cluster, ":lab")
	}
	signer, err := installed.Hub.CoreV1().Secrets(installed.Namespace).Get(t.Context(), "cluster-proxy-signer", metav1.GetOptions{})
	if err != nil || !bytes.Equal(signer.Data["ca.crt"], ca) {
		t.Errorf("upstream's CA was not taken over, %v", err)
	}
	role, err := installed.Hub.RbacV1().ClusterRoles().Get(t.Context(), "open-cluster-management:cluster-proxy:addon-manager", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range role.Rules {
		if slices.Contains(rule.Verbs, "*") {
			t.Errorf("upstream's rights are left: %v", rule)
		}
	}
	t.Run("kubectl", TestKubectl)
	t.Run("Go client", TestGoClientWithKonnectivity)
}

// apply applies a file of testdata/upstream to the hub.
func apply(t *testing.T, file string, replace ...string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata/upstream", file))
	if err != nil {
		t.Fatal(err)
	}
	kubectl, env := installed.KubectlProgram("hub")
	cmd := exec.CommandContext(t.Context(), kubectl, "--kubeconfig="+installed.HubKubeconfig, "apply", "-f", "-")
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(strings.NewReplacer(replace...).Replace(string(content)))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("applying %s: %v\n%s", file, err, out)
	}
}

// upstreamSecrets makes the Secrets that upstream's addon manager makes: one CA
// (RSA 2048, for ten years), and one certificate for everything.
func upstreamSecrets(t *testing.T, owner metav1.OwnerReference) (ca []byte) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "open-cluster-management:cluster-proxy"}, DNSNames: []string{"open-cluster-management:cluster-proxy"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	leaf := map[string][]byte{corev1.TLSCertKey: ca, corev1.TLSPrivateKeyKey: keyPEM}
	for name, data := range map[string]map[string][]byte{
		"cluster-proxy-signer": {"ca.crt": ca, "ca.key": keyPEM}, "proxy-server-ca": {"ca.crt": ca},
		"proxy-server": leaf, "agent-server": leaf, "proxy-client": leaf, "cluster-proxy-user-serving-cert": leaf, "cluster-proxy-service-proxy-server-cert": leaf,
	} {
		kind := corev1.SecretTypeOpaque
		if data[corev1.TLSCertKey] != nil {
			kind = corev1.SecretTypeTLS
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{owner}}, Type: kind, Data: data}
		if _, err := installed.Hub.CoreV1().Secrets(installed.Namespace).Create(context.Background(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return ca
}
