package certificates

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// Store reads what Ensure keeps in Secrets.
type Store struct {
	Client client.Reader
	// Namespace is that of the CAs, and BundleNamespace that of the proxy
	// servers, where the bundles are.
	Namespace, BundleNamespace string
}

// AgentCA is the CA that signs agents' certificates. It is an error while Ensure
// has not made it.
func (s Store) AgentCA(ctx context.Context) (*pki.CA, error) {
	var secret corev1.Secret
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: AgentSignerSecret}, &secret); err != nil {
		return nil, fmt.Errorf("reading the agent CA: %w", err)
	}
	return parseCA(&secret)
}

// HubBundle is what agents verify proxy servers with, PEM.
func (s Store) HubBundle(ctx context.Context) ([]byte, error) {
	var secret corev1.Secret
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.BundleNamespace, Name: HubBundleSecret}, &secret); err != nil {
		return nil, fmt.Errorf("reading the hub CA's bundle: %w", err)
	}
	if len(secret.Data[caCert]) == 0 {
		return nil, fmt.Errorf("secret %q in namespace %q has no %s", HubBundleSecret, s.BundleNamespace, caCert)
	}
	return secret.Data[caCert], nil
}

// UserServingBundle is what clients verify the proxy API with, PEM: the hub CA's
// bundle, or the CA that came with a certificate that a user provided, which is
// empty where that is from a public CA.
func (s Store) UserServingBundle(ctx context.Context) ([]byte, error) {
	var secret corev1.Secret
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.BundleNamespace, Name: UserServingSecret}, &secret); err != nil {
		return nil, fmt.Errorf("reading the proxy API's serving certificate: %w", err)
	}
	if provided(&secret) {
		return secret.Data[caCert], nil
	}
	return s.HubBundle(ctx)
}

// provided reports whether the proxy API's certificate comes from a user, for
// example from cert-manager. Those of upstream and of this addon manager have the
// configuration as owner.
func provided(secret *corev1.Secret) bool {
	return secret.Labels[managedLabel] == "" && !ownedByConfiguration(secret)
}
