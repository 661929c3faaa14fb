package certificates

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
