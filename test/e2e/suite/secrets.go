package suite

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// The Secrets of the two CAs, and those of the bundles that are trusted.
const (
	HubSigner, AgentSigner = "cluster-proxy-signer", "cluster-proxy-agent-signer"
	HubBundle, AgentBundle = "proxy-server-ca", "cluster-proxy-agent-ca"
)

// HubLeaves are the certificates on the hub.
var HubLeaves = []string{"proxy-server", "agent-server", "proxy-client", "cluster-proxy-api-client", "cluster-proxy-user-serving-cert"}

// HubSecret reads a Secret of the addon on the hub.
func (s *Suite) HubSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	return s.Hub.CoreV1().Secrets(s.Namespace).Get(ctx, name, metav1.GetOptions{})
}

// MustHubSecret is HubSecret, without which the test ends.
func (s *Suite) MustHubSecret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	secret, err := s.HubSecret(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// condition is one of the configuration's.
func (s *Suite) condition(ctx context.Context, kind string) (metav1.Condition, error) {
	object, err := s.Configuration.Get(ctx, identity.AddonName, metav1.GetOptions{})
	if err != nil {
		return metav1.Condition{}, err
	}
	raw, err := json.Marshal(object.Object["status"])
	if err != nil {
		return metav1.Condition{}, err
	}
	var status struct{ Conditions []metav1.Condition }
	if err := json.Unmarshal(raw, &status); err != nil {
		return metav1.Condition{}, err
	}
	for _, c := range status.Conditions {
		if c.Type == kind {
			return c, nil
		}
	}
	return metav1.Condition{}, fmt.Errorf("condition %s is not set", kind)
}

// WantCondition waits for a condition of the configuration with this reason, and
// message in its text.
func (s *Suite) WantCondition(t *testing.T, kind, reason, message string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("condition %s to be %s %s", kind, reason, message), func() error {
		c, err := s.condition(t.Context(), kind)
		if err == nil && (c.Reason != reason || !strings.Contains(c.Message, message)) {
			err = fmt.Errorf("it is %s %s: %s", c.Status, c.Reason, c.Message)
		}
		return err
	})
}

// Pool returns the certificates of a bundle.
func Pool(t *testing.T, bundle []byte) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		t.Fatal("no certificate in a bundle")
	}
	return pool
}

// Certificates are all leaves, by a name for messages.
func (s *Suite) Certificates(ctx context.Context, t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, name := range HubLeaves {
		out[name] = s.MustHubSecret(t, name).Data["tls.crt"]
	}
	for _, cluster := range s.Clusters {
		secret, err := Clientset(t, s.Direct(cluster)).CoreV1().Secrets(s.AgentNamespace).Get(ctx, identity.AgentCertificateSecret, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out[cluster+"'s agent"] = secret.Data["tls.crt"]
	}
	return out
}

// CheckChains verifies each leaf with the bundle that is its own, and with the
// other one, which must refuse it.
func (s *Suite) CheckChains(t *testing.T, leaves map[string][]byte) {
	t.Helper()
	own, other := s.MustHubSecret(t, HubBundle).Data["ca.crt"], s.MustHubSecret(t, AgentBundle).Data["ca.crt"]
	for name, data := range leaves {
		right, wrong := own, other
		if strings.HasSuffix(name, "'s agent") {
			right, wrong = other, own
		}
		block, _ := pem.Decode(data)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		usages := []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: Pool(t, right), KeyUsages: usages}); err != nil {
			t.Errorf("%s is not trusted as one of its own CA: %v", name, err)
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: Pool(t, wrong), KeyUsages: usages}); err == nil {
			t.Errorf("%s is trusted as if it were of the other CA", name)
		}
	}
}

func (s *Suite) WantStable(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"HubCARotating", "AgentCARotating"} {
		s.WantCondition(t, kind, "Stable", "Expiry:")
	}
	s.HubCA = s.MustHubSecret(t, HubBundle).Data["ca.crt"]
}
