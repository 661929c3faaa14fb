package certificates

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// Names of what is made for cert-manager. The Secrets are cert-manager's own.
const (
	certManagerVersion = "cert-manager.io/v1"
	certManagerOwner   = client.FieldOwner(identity.AddonManager)

	certManagerIssuer   = "cluster-proxy-selfsigned"
	CertManagerHubCA    = "cluster-proxy-hub-ca"
	CertManagerAgentCA  = "cluster-proxy-agent-ca-cert"
	certManagerLifetime = "43800h0m0s" // five years
	certManagerRenewal  = "14600h0m0s" // a third of them before the end
)

// CertManager is the CASource of CAs that cert-manager keeps: it asks for them with
// Certificates and waits until cert-manager has filled their Secrets. When
// cert-manager renews one, that is a rotation like every other.
type CertManager struct {
	Client    client.Client
	Namespace string
	// IssuerName, IssuerKind and IssuerGroup refer to the issuer of the CAs. An empty
	// name means an Issuer that is made here, by which they sign themselves.
	IssuerName, IssuerKind, IssuerGroup string
}

// CA asks for a CA and reads it. Until it exists, the error says what cert-manager
// reports.
func (m CertManager) CA(ctx context.Context, ca CAName) (pki.KeyPair, error) {
	for _, object := range m.objects(ca) {
		err := m.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), certManagerOwner, client.ForceOwnership)
		if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return pki.KeyPair{}, fmt.Errorf("signer type CertManager needs cert-manager on the hub, which serves no %s %s; install it, or use another type", object.GetAPIVersion(), object.GetKind())
		}
		if err != nil {
			return pki.KeyPair{}, fmt.Errorf("asking cert-manager for the %s with %s %q: %w", ca, object.GetKind(), object.GetName(), err)
		}
	}
	name := m.secretOf(ca)
	pair, err := Provided{Client: m.Client, Namespace: m.Namespace, Secrets: map[CAName]string{ca: name}}.CA(ctx, ca)
	if err != nil {
		return pki.KeyPair{}, fmt.Errorf("waiting for cert-manager (Certificate %q: %s): %w", name, m.condition(ctx, name), err)
	}
	return pair, nil
}

// secretOf is the name of a CA's Certificate and of its Secret.
func (m CertManager) secretOf(ca CAName) string {
	return map[CAName]string{HubCA: CertManagerHubCA, AgentCA: CertManagerAgentCA}[ca]
}

func (m CertManager) objects(ca CAName) []*unstructured.Unstructured {
	object := func(kind, name string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": certManagerVersion, "kind": kind,
			"metadata": map[string]any{"name": name, "namespace": m.Namespace, "labels": map[string]any{managedLabel: "ca"}},
			"spec":     spec,
		}}
	}
	var objects []*unstructured.Unstructured
	issuer := map[string]any{"name": m.IssuerName, "kind": m.IssuerKind, "group": m.IssuerGroup}
	if m.IssuerName == "" {
		objects = append(objects, object("Issuer", certManagerIssuer, map[string]any{"selfSigned": map[string]any{}}))
		issuer = map[string]any{"name": certManagerIssuer, "kind": "Issuer", "group": "cert-manager.io"}
	}
	for key, value := range issuer {
		if value == "" {
			delete(issuer, key) // cert-manager has defaults
		}
	}
	name := m.secretOf(ca)
	return append(objects, object("Certificate", name, map[string]any{
		"isCA":        true,
		"commonName":  commonNames[ca],
		"secretName":  name,
		"duration":    certManagerLifetime,
		"renewBefore": certManagerRenewal,
		// A renewed CA with the old key would be no new CA.
		"privateKey": map[string]any{"algorithm": "ECDSA", "size": int64(256), "rotationPolicy": "Always"},
		"usages":     []any{"cert sign", "digital signature"},
		"issuerRef":  issuer,
	}))
}

// condition is what cert-manager says of a Certificate.
func (m CertManager) condition(ctx context.Context, name string) string {
	certificate := &unstructured.Unstructured{Object: map[string]any{"apiVersion": certManagerVersion, "kind": "Certificate"}}
	if err := m.Client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: name}, certificate); err != nil {
		return err.Error()
	}
	conditions, _, _ := unstructured.NestedSlice(certificate.Object, "status", "conditions")
	for _, item := range conditions {
		if condition, ok := item.(map[string]any); ok && condition["type"] == "Ready" {
			return fmt.Sprintf("Ready is %v: %v", condition["status"], condition["message"])
		}
	}
	return "cert-manager has said nothing yet"
}

// Provided is the CASource of CAs that users keep in Secrets, with keys
// tls.crt and tls.key, or ca.crt and ca.key.
type Provided struct {
	Client    client.Reader
	Namespace string
	// Secrets are their names.
	Secrets map[CAName]string
}

// CA reads a CA. A Secret that is missing or incomplete is an error.
func (p Provided) CA(ctx context.Context, ca CAName) (pki.KeyPair, error) {
	name := p.Secrets[ca]
	var secret corev1.Secret
	err := p.Client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, &secret)
	if apierrors.IsNotFound(err) {
		return pki.KeyPair{}, fmt.Errorf("the %s is to come from secret %q in namespace %q, which is not there yet", ca, name, p.Namespace)
	}
	if err != nil {
		return pki.KeyPair{}, fmt.Errorf("reading the %s in secret %q: %w", ca, name, err)
	}
	for _, keys := range [][2]string{{corev1.TLSCertKey, corev1.TLSPrivateKeyKey}, {caCert, caKey}} {
		if pair := (pki.KeyPair{CertPEM: secret.Data[keys[0]], KeyPEM: secret.Data[keys[1]]}); len(pair.CertPEM) > 0 && len(pair.KeyPEM) > 0 {
			return pair, nil
		}
	}
	return pki.KeyPair{}, fmt.Errorf("secret %q in namespace %q must hold the %s as tls.crt and tls.key, or as ca.crt and ca.key", name, p.Namespace, ca)
}
