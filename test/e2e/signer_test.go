package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// giveCA keeps a new CA in a Secret on the hub.
func giveCA(t *testing.T, name string) pki.KeyPair {
	t.Helper()
	pair, err := pki.NewCA(name, time.Now(), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": pair.CertPEM, "tls.key": pair.KeyPEM}}
	if _, err := installed.Hub.CoreV1().Secrets(installed.Namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = installed.Hub.CoreV1().Secrets(installed.Namespace).Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	return pair
}

// wantCAs waits until both CAs are these and no others, and everything works
// with them.
func wantCAs(t *testing.T, hub, agents pki.KeyPair) {
	t.Helper()
	for bundle, pair := range map[string]pki.KeyPair{suite.HubBundle: hub, suite.AgentBundle: agents} {
		suite.Eventually(t, bundle+" to hold the CA and nothing else", func() error {
			secret, err := installed.HubSecret(t.Context(), bundle)
			if err == nil && !bytes.Equal(secret.Data["ca.crt"], pair.CertPEM) {
				err = fmt.Errorf("it holds something else")
			}
			return err
		})
	}
	installed.WantStable(t)
	installed.WantCondition(t, "SignerReady", "Ready", "")
	installed.CheckChains(t, installed.Certificates(t.Context(), t))
	for _, cluster := range installed.Clusters {
		suite.Eventually(t, cluster+" reachable", func() error { return installed.Reachable(t.Context(), cluster) })
	}
}

// TestCertManager plays cert-manager, of which the hub has the definitions only:
// what is asked for is checked by the kube-apiserver against their schemas. It
// disturbs all clusters: every certificate is issued again, twice.
func TestCertManager(t *testing.T) {
	long.Test(t)
	installed.NeedLab(t, "needs kubelets that hand on a Secret in seconds")
	if onNodes {
		t.Skip("needs kubelets that take seconds and not minutes to hand on a Secret")
	}
	dyn, err := dynamic.NewForConfig(installed.HubConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := installed.PatchConfiguration(t, `{"spec":{"authentication":{"signer":{"type":"CertManager"}}}}`); err != nil {
		t.Fatal(err)
	}
	installed.WantCondition(t, "SignerReady", "NotReady", "needs cert-manager on the hub")
	for _, cluster := range installed.Clusters {
		if err := installed.Reachable(t.Context(), cluster); err != nil {
			t.Errorf("%s is not reachable any more: %v", cluster, err)
		}
	}
	definitions := dyn.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, kind := range []string{"certificates", "issuers"} {
		raw, err := os.ReadFile("../../pkg/addonmanager/certificates/testdata/cert-manager-" + kind + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		definition := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(raw, &definition.Object); err != nil {
			t.Fatal(err)
		}
		if _, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	installed.WantCondition(t, "SignerReady", "NotReady", "waiting for cert-manager")
	given := map[string]pki.KeyPair{}
	requests := dyn.Resource(schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificates"}).Namespace(installed.Namespace)
	for _, name := range []string{"cluster-proxy-hub-ca", "cluster-proxy-agent-ca-cert"} {
		suite.Eventually(t, "Certificate "+name, func() error {
			object, err := requests.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			raw, _ := json.Marshal(object.Object["spec"])
			if isCA, _, _ := unstructured.NestedBool(object.Object, "spec", "isCA"); !isCA {
				return fmt.Errorf("no CA is asked for: %s", raw)
			}
			return nil
		})
		given[name] = giveCA(t, name)
	}
	wantCAs(t, given["cluster-proxy-hub-ca"], given["cluster-proxy-agent-ca-cert"])
}
