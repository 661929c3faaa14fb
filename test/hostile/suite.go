package hostile

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/lab"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// testTimeout bounds how long anything may take on a busy machine.
const testTimeout = 2 * time.Minute

// Suite is the system under attack.
type Suite struct {
	Lab *lab.Lab
	// Clusters are two managed clusters whose agents are connected: the
	// attacker's and the victim's.
	Clusters [2]string
	// Namespace is the addon's on the hub.
	Namespace string
	// ProxyServer and ProxyAPI are host:port of their ports for clients.
	ProxyServer, ProxyAPI string
	// Domain is that of the clusters' own hosts at the proxy API.
	Domain string
	// Binary is the addon's, for accomplices.
	Binary string

	hub     *kubernetes.Clientset
	managed map[string]*kubernetes.Clientset
	hubCA   []byte
}

// Run tries everything.
func Run(t *testing.T, s *Suite) {
	if err := s.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Run("AgentID", s.testAgentID)
	t.Run("Dials", s.testDials)
	t.Run("Requests", s.testRequests)
	t.Run("ForgedHeaders", s.testForgedHeaders)
	t.Run("Ways", s.testWays)
	t.Run("ViewerExec", s.testViewerExec)
	t.Run("Passes", s.testPasses)
	t.Run("ViewSecrecy", s.testViewSecrecy)
	t.Run("Revocation", s.testRevocation)
	t.Run("ServiceAccounts", s.testServiceAccounts)
	t.Run("AgentOnTheHub", s.testAgentOnTheHub)
}

func (s *Suite) connect(ctx context.Context) (err error) {
	if s.hub, err = kubernetes.NewForConfig(s.Lab.Hub.RESTConfig()); err != nil {
		return err
	}
	s.managed = map[string]*kubernetes.Clientset{}
	for name, cluster := range s.Lab.Managed {
		if s.managed[name], err = kubernetes.NewForConfig(cluster.RESTConfig()); err != nil {
			return err
		}
	}
	bundle, err := s.hub.CoreV1().Secrets(s.Namespace).Get(ctx, "proxy-server-ca", metav1.GetOptions{})
	if err != nil {
		return err
	}
	s.hubCA = bundle.Data["ca.crt"]
	return nil
}

func (s *Suite) attacker() string { return s.Clusters[0] }
func (s *Suite) victim() string   { return s.Clusters[1] }

func (s *Suite) agentPort() string { return "127.0.0.1:" + strconv.Itoa(s.Lab.AgentPort) }

// secret is a Secret of the hub's addon namespace.
func (s *Suite) secret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	secret, err := s.hub.CoreV1().Secrets(s.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// agentCertificate is the real one of a cluster's agent, from its own Secret.
func (s *Suite) agentCertificate(t *testing.T, cluster string) pki.KeyPair {
	t.Helper()
	secret, err := s.managed[cluster].CoreV1().Secrets(identity.DefaultAgentNamespace).Get(t.Context(),
		identity.AgentCertificateSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pki.KeyPair{CertPEM: secret.Data["tls.crt"], KeyPEM: secret.Data["tls.key"]}
}

func (s *Suite) pairOf(t *testing.T, secret string) pki.KeyPair {
	t.Helper()
	data := s.secret(t, secret).Data
	return pki.KeyPair{CertPEM: data["tls.crt"], KeyPEM: data["tls.key"]}
}

// ca is one of the hub's two CAs: the attacker has got hold of its key, or of
// something that it signed.
func (s *Suite) ca(t *testing.T, secret string) *pki.CA {
	t.Helper()
	data := s.secret(t, secret).Data
	ca, err := pki.ParseCA(pki.KeyPair{CertPEM: data["ca.crt"], KeyPEM: data["ca.key"]})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

const (
	hubSigner   = "cluster-proxy-signer"
	agentSigner = "cluster-proxy-agent-signer"
)

// write puts a certificate and the CAs that its holder trusts into files.
func write(t *testing.T, pair pki.KeyPair, trusted []byte) pki.Files {
	t.Helper()
	dir := t.TempDir()
	files := pki.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}
	for path, content := range map[string][]byte{files.Cert: pair.CertPEM, files.Key: pair.KeyPEM, files.CA: trusted} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func clientTLS(t *testing.T, pair pki.KeyPair, trusted []byte, serverName string) *tls.Config {
	t.Helper()
	return pkitest.Load(t, write(t, pair, trusted)).ClientConfig(serverName)
}

// podMetric adds up a metric over the pods of a component on the hub.
func (s *Suite) podMetric(ctx context.Context, c component, name string) (float64, error) {
	return s.Lab.PodMetric(ctx, "hub", s.Namespace, c.selector, c.port, name)
}
