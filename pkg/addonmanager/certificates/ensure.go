package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

const leafValidity = 180 * 24 * time.Hour

// Result says until when certificates are valid, by the name of their Secret.
type Result struct {
	Expiry map[string]time.Time
	// Rotations are those of both CAs; a CA that is not available is missing.
	Rotations map[CAName]Rotation
	// SignerError is the part of Ensure's error that is about CAs.
	SignerError error
	// RenewAfter is when to call Ensure again at the latest.
	RenewAfter time.Duration
}

// rotationPoll is how often a rotation is looked at.
const rotationPoll = 15 * time.Second

// Ensure makes the CAs, if there are none, continues their rotation, and issues what is
// missing, wrong or near its end. A failure of one of these does not stop the others:
// with an error, the result is about those that succeeded.
func Ensure(ctx context.Context, c client.Client, p Params, now time.Time) (Result, error) {
	result := Result{Expiry: map[string]time.Time{}, Rotations: map[CAName]Rotation{}, RenewAfter: 12 * time.Hour}
	hub, err := loadAuthority(ctx, c, p, HubCA, nil, now)
	if err != nil {
		result.SignerError = err
		return result, err
	}
	agents, err := loadAuthority(ctx, c, p, AgentCA, hub, now)
	if err != nil {
		result.SignerError = err
		return result, err
	}
	// First issue what the current phases ask for, in case an earlier call did not get
	// that far: a phase does not end before that is written.
	trusted, failed := p.keep(ctx, c, hub, agents, now, &result)
	moved := false
	for _, ca := range []CAName{HubCA, AgentCA} {
		rotation, err := rotate(ctx, c, p, ca, hub, agents, trusted, failed == nil, now)
		if err != nil {
			// The certificates that exist go on working.
			result.SignerError = errors.Join(result.SignerError, err)
		}
		result.Rotations[ca] = rotation
		moved = moved || rotation.Moved
		if rotation.Phase != Stable {
			result.RenewAfter = min(result.RenewAfter, rotationPoll, max(p.Propagation/2, time.Second))
		}
	}
	if moved {
		_, failed = p.keep(ctx, c, hub, agents, now, &result)
	}
	return result, errors.Join(result.SignerError, failed)
}

// keep writes the bundles and issues the certificates that the phases of both CAs ask
// for. If that changed anything, the time that pods may take to read changes begins
// now. trusted says that the bundles are written.
func (p Params) keep(ctx context.Context, c client.Client, hub, agents *authority, now time.Time, result *Result) (trusted bool, err error) {
	var failures []error
	changed := false
	for name, a := range map[string]*authority{HubBundleSecret: hub, AgentBundleSecret: agents} {
		wrote, err := apply(ctx, c, p, name, corev1.SecretTypeOpaque, map[string][]byte{caCert: a.bundle()})
		failures = append(failures, err)
		changed = changed || wrote
	}
	if err := errors.Join(failures...); err != nil {
		return false, err // what is issued now could not be verified
	}
	if !p.FleetIndex {
		failures = append(failures, p.withdraw(ctx, c, IndexClientSecret))
	}
	leaves := p.leaves()
	// In order, so that the same failures make the same message.
	for _, name := range slices.Sorted(maps.Keys(leaves)) {
		expiry, wrote, err := ensureLeaf(ctx, c, p, hub, name, leaves[name], now)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if expiry.IsZero() {
			continue // the user has not brought it yet
		}
		changed = changed || wrote
		result.Expiry[name] = expiry
		// A third of what is left now is well before a third of its life.
		result.RenewAfter = min(result.RenewAfter, max(expiry.Sub(now)/3, time.Minute))
	}
	for _, a := range []*authority{hub, agents} {
		if changed && a.phase() != Stable && a.since(now).Before(now.Truncate(time.Second)) {
			failures = append(failures, a.write(ctx, c, now))
		}
	}
	return true, errors.Join(failures...)
}

// withdraw deletes a certificate that was issued here and is not to be any more.
func (p Params) withdraw(ctx context.Context, c client.Client, name string) error {
	var secret corev1.Secret
	err := c.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, &secret)
	if err == nil && secret.Labels[managedLabel] != "" {
		err = c.Delete(ctx, &secret, client.Preconditions{UID: &secret.UID})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting secret %q: %w", name, err)
	}
	return nil
}

func (p Params) leaves() map[string]pki.Leaf {
	server := serving("proxy-server", p.ServerNames)
	// Proxy servers are clients of each other's client port.
	peer := serving(string(identity.RolePeer), p.ServerNames)
	peer.Client = true
	client := func(role identity.Role) pki.Leaf {
		return pki.Leaf{CommonName: string(role), Organizations: []string{identity.Organization}, Client: true, Validity: leafValidity}
	}
	// Replicas of the proxy API are servers to each other.
	api := client(identity.RoleProxyAPI)
	api.Server, api.DNSNames = true, []string{identity.ProxyAPIPeerHost}
	leaves := map[string]pki.Leaf{
		p.ProxyServerSecret: peer,
		p.AgentServerSecret: server,
		p.ProxyClientSecret: client(identity.RoleClient),
		APIClientSecret:     api,
		UserServingSecret:   serving("proxy-api", p.UserServerNames),
	}
	if p.FleetIndex {
		// The index is a server to the proxy API, and a client of proxy servers and agents.
		index := client(identity.RoleFleetIndex)
		index.Server, index.DNSNames = true, []string{identity.FleetIndexHost}
		leaves[IndexClientSecret] = index
	}
	return leaves
}

func serving(commonName string, names []string) pki.Leaf {
	leaf := pki.Leaf{CommonName: commonName, Server: true, Validity: leafValidity}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if ip := net.ParseIP(name); ip != nil {
			leaf.IPs = append(leaf.IPs, ip)
		} else if name != "" {
			leaf.DNSNames = append(leaf.DNSNames, name)
		}
	}
	return leaf
}

// ensureLeaf returns no expiry if a user is to bring the certificate and has not.
func ensureLeaf(ctx context.Context, c client.Client, p Params, hub *authority, name string, leaf pki.Leaf, now time.Time) (expiry time.Time, wrote bool, err error) {
	var secret corev1.Secret
	err = c.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, &secret)
	if err != nil && !apierrors.IsNotFound(err) {
		return time.Time{}, false, fmt.Errorf("reading secret %q: %w", name, err)
	}
	if err != nil && name == UserServingSecret && p.UserServerProvided {
		return time.Time{}, false, nil
	}
	if len(secret.Data[caKey]) > 0 {
		return time.Time{}, false, fmt.Errorf("secret %q holds the key of a CA: a certificate must not replace it", name)
	}
	certificate := secret.Data[corev1.TLSCertKey]
	if err == nil && name == UserServingSecret && provided(&secret) {
		if expiry, err = pki.NotAfter(certificate); err != nil {
			return time.Time{}, false, fmt.Errorf("reading the certificate that was provided in secret %q: %w", name, err)
		}
		return expiry, false, nil
	}
	_, mismatch := tls.X509KeyPair(certificate, secret.Data[corev1.TLSPrivateKeyKey])
	if err == nil && mismatch == nil && pki.RenewalReason(certificate, hub.current, leaf, now) == "" {
		expiry, err = pki.NotAfter(certificate)
		return expiry, false, err
	}
	pair, err := hub.current.Issue(leaf, now)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("issuing the certificate in secret %q: %w", name, err)
	}
	data := map[string][]byte{corev1.TLSCertKey: pair.CertPEM, corev1.TLSPrivateKeyKey: pair.KeyPEM}
	if name == UserServingSecret {
		// The chain, so that one file is enough for peers that trust its end.
		data[corev1.TLSCertKey] = bytes.Join([][]byte{pair.CertPEM, hub.current.CertPEM()}, nil)
	}
	// The Secret as it was read decides: if another addon manager has issued a
	// certificate since, that one stays.
	if wrote, err = write(ctx, c, p, &secret, name, corev1.SecretTypeTLS, data); err != nil {
		return time.Time{}, wrote, err
	}
	expiry, err = pki.NotAfter(pair.CertPEM)
	return expiry, wrote, err
}

// apply reports whether it wrote the Secret.
func apply(ctx context.Context, c client.Client, p Params, name string, kind corev1.SecretType, data map[string][]byte) (bool, error) {
	var secret corev1.Secret
	if err := c.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, &secret); err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("reading secret %q: %w", name, err)
	}
	return write(ctx, c, p, &secret, name, kind, data)
}

// write puts data into the Secret that was read, or makes one if none was found,
// and reports whether it wrote. It is a conflict if the Secret has changed since.
func write(ctx context.Context, c client.Client, p Params, read *corev1.Secret, name string, kind corev1.SecretType, data map[string][]byte) (bool, error) {
	// The cache's object must not be written to.
	secret := read.DeepCopy()
	if secret.UID == "" {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name, OwnerReferences: []metav1.OwnerReference{p.Owner}}, Type: kind}
	} else {
		same := secret.Labels[managedLabel] != ""
		for key, value := range data {
			same = same && bytes.Equal(secret.Data[key], value)
		}
		if same {
			return false, nil
		}
	}
	if secret.Labels == nil {
		secret.Labels = map[string]string{}
	}
	secret.Labels[managedLabel] = "true"
	secret.Data = data
	put := func() error { return c.Update(ctx, secret) }
	if secret.UID == "" {
		put = func() error { return c.Create(ctx, secret) }
	}
	if err := put(); err != nil {
		return false, fmt.Errorf("keeping secret %q: %w", name, err)
	}
	return true, nil
}
