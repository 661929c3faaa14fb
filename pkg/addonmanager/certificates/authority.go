package certificates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// Phase is how far the rotation of a CA is.
type Phase string

// The phases, in order.
const (
	// Stable means that there is one CA.
	Stable Phase = "Stable"
	// Distributing means that the next CA is trusted and signs nothing yet.
	Distributing Phase = "Distributing"
	// Reissuing means that the next CA has become the CA, everything is signed
	// by it, and the one before is still trusted.
	Reissuing Phase = "Reissuing"
)

// Phases are all of them.
var Phases = []Phase{Stable, Distributing, Reissuing}

const (
	caCert = "ca.crt"
	caKey  = "ca.key"
	// nextCert and nextKey are there in phase Distributing, previousCert in phase
	// Reissuing: the phase is what the Secret holds, and nothing else.
	nextCert     = "next-ca.crt"
	nextKey      = "next-ca.key"
	previousCert = "previous-ca.crt"

	// sinceAnnotation is when the phase began.
	sinceAnnotation = "proxy.open-cluster-management.io/rotation-phase-since"
	// requestAnnotation, with the configuration's name, is the request for a
	// rotation that was honoured last.
	requestAnnotation = "rotation.proxy.open-cluster-management.io/"
)

// authority is a CA and its rotation, as the CA's Secret holds it.
type authority struct {
	secret        *corev1.Secret
	current, next *pki.CA
	previous      []byte
}

func readAuthority(secret *corev1.Secret) (*authority, error) {
	a := &authority{secret: secret.DeepCopy()}
	var err error
	if a.current, err = parseCA(secret); err != nil {
		return nil, err
	}
	if _, ok := secret.Data[nextCert]; ok {
		if a.next, err = pki.ParseCA(pki.KeyPair{CertPEM: secret.Data[nextCert], KeyPEM: secret.Data[nextKey]}); err != nil {
			return nil, fmt.Errorf("reading the next CA in secret %q (%s and %s; remove both to give up the rotation): %w", secret.Name, nextCert, nextKey, err)
		}
	}
	a.previous = secret.Data[previousCert]
	return a, nil
}

func (a *authority) phase() Phase {
	switch {
	case a.next != nil:
		return Distributing
	case len(a.previous) > 0:
		return Reissuing
	}
	return Stable
}

// bundle is what is trusted.
func (a *authority) bundle() []byte {
	switch a.phase() {
	case Distributing:
		return pki.Join(a.current.CertPEM(), a.next.CertPEM())
	case Reissuing:
		return pki.Join(a.current.CertPEM(), a.previous)
	}
	return a.current.CertPEM()
}

// newest is the CA that everybody is to arrive at.
func (a *authority) newest() *pki.CA {
	if a.next != nil {
		return a.next
	}
	return a.current
}

// oldEnded reports whether the CA that is to go has expired, so that no peer can
// be using it.
func (a *authority) oldEnded(now time.Time) bool {
	if a.next != nil {
		return !now.Before(a.current.NotAfter())
	}
	end, err := pki.NotAfter(a.previous)
	return err == nil && !now.Before(end)
}

// since returns when the phase began. If that is not stored, it began just now, which
// can only make a rotation slower.
func (a *authority) since(now time.Time) time.Time {
	at, err := time.Parse(time.RFC3339, a.secret.Annotations[sinceAnnotation])
	if err != nil || at.After(now) {
		return now
	}
	return at
}

// stage starts a rotation to pair.
func (a *authority) stage(pair pki.KeyPair) {
	a.secret.Data[nextCert], a.secret.Data[nextKey] = pair.CertPEM, pair.KeyPEM
}

// advance goes to the next phase.
func (a *authority) advance() {
	data := a.secret.Data
	switch a.phase() {
	case Distributing:
		data[previousCert] = a.current.CertPEM()
		data[caCert], data[caKey] = data[nextCert], data[nextKey]
		delete(data, nextCert)
		delete(data, nextKey)
	case Reissuing:
		delete(data, previousCert)
	}
}

// write stores what was changed. It fails if the Secret was changed meanwhile; the
// decision is then made again.
func (a *authority) write(ctx context.Context, c client.Client, now time.Time) error {
	if a.secret.Annotations == nil {
		a.secret.Annotations = map[string]string{}
	}
	a.secret.Annotations[sinceAnnotation] = now.UTC().Format(time.RFC3339)
	if err := c.Update(ctx, a.secret); err != nil {
		return fmt.Errorf("keeping the rotation in secret %q: %w", a.secret.Name, err)
	}
	return nil
}

// loadAuthority reads a CA, or makes the first one, apart from other if there is
// one.
func loadAuthority(ctx context.Context, c client.Client, p Params, ca CAName, other *authority, now time.Time) (*authority, error) {
	var secret corev1.Secret
	err := c.Get(ctx, client.ObjectKey{Namespace: p.SignerNamespace, Name: p.secretOf(ca)}, &secret)
	if err == nil {
		a, err := readAuthority(&secret)
		if err != nil {
			return nil, err
		}
		if other != nil {
			if err := errors.Join(pki.CheckApart(a.current, other.bundle()), pki.CheckApart(a.newest(), other.bundle())); err != nil {
				return nil, err
			}
		}
		return a, a.disown(ctx, c)
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the CA in secret %q: %w", p.secretOf(ca), err)
	}
	pair, err := p.newCA(ctx, ca, now)
	if err != nil {
		return nil, err
	}
	made, err := pki.ParseCA(pair)
	if err != nil {
		return nil, fmt.Errorf("reading the new %s: %w", ca, err)
	}
	if other != nil {
		if err := pki.CheckApart(made, other.bundle()); err != nil {
			return nil, err
		}
	}
	secret = corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.SignerNamespace, Name: p.secretOf(ca), Labels: map[string]string{managedLabel: "ca"},
			Annotations: map[string]string{sinceAnnotation: now.UTC().Format(time.RFC3339)},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{caCert: pair.CertPEM, caKey: pair.KeyPEM},
	}
	if p.Request != "" {
		secret.Annotations[p.requestKey()] = p.Request // what is asked for is there
	}
	// Create, never update: of two that race, the first one's CA is the CA.
	if err := c.Create(ctx, &secret); err != nil {
		return nil, fmt.Errorf("keeping the %s in secret %q: %w", ca, secret.Name, err)
	}
	return readAuthority(&secret)
}

// disown removes the configuration, which upstream made the owner of a CA, so that the
// CA is not collected with it.
func (a *authority) disown(ctx context.Context, c client.Client) error {
	if !ownedByConfiguration(a.secret) {
		return nil
	}
	a.secret.OwnerReferences = slices.DeleteFunc(a.secret.OwnerReferences, isConfiguration)
	if err := c.Update(ctx, a.secret); err != nil {
		return fmt.Errorf("taking the owner from the CA in secret %q: %w", a.secret.Name, err)
	}
	return nil
}

func (p Params) requestKey() string { return requestAnnotation + p.Owner.Name }

func parseCA(secret *corev1.Secret) (*pki.CA, error) {
	ca, err := pki.ParseCA(pki.KeyPair{CertPEM: secret.Data[caCert], KeyPEM: secret.Data[caKey]})
	if err != nil {
		return nil, fmt.Errorf("reading the CA in secret %q of namespace %q (%s and %s): %w", secret.Name, secret.Namespace, caCert, caKey, err)
	}
	return ca, nil
}
