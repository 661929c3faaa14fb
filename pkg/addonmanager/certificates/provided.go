package certificates

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

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
