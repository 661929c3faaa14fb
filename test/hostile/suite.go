package hostile

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// testTimeout bounds how long anything may take on a busy machine.
const testTimeout = 2 * time.Minute

// Suite is the system under attack.
type Suite struct {
	*suite.Suite
	binary  string // the addon's, for accomplices
	managed map[string]*kubernetes.Clientset
}

// Run tries everything. The first two clusters are the attacker's and the victim's.
func Run(t *testing.T, installed *suite.Suite, binary string) {
	s := &Suite{installed, binary, map[string]*kubernetes.Clientset{}}
	for name, cluster := range s.Lab.Managed {
		s.managed[name] = suite.Clientset(t, cluster.RESTConfig())
	}
	t.Run("AgentID", s.testAgentID)
	t.Run("Dials", s.testDials)
	t.Run("Requests", s.testRequests)
	t.Run("ForgedHeaders", s.testForgedHeaders)
	t.Run("Ways", s.testWays)
	t.Run("ViewerExec", s.testViewerExec)
	t.Run("Passes", s.testPasses)
	t.Run("Policies", s.testPolicies)
	t.Run("ViewSecrecy", s.testViewSecrecy)
	t.Run("Revocation", s.testRevocation)
	t.Run("ServiceAccounts", s.testServiceAccounts)
	t.Run("AgentOnTheHub", s.testAgentOnTheHub)
}

func (s *Suite) attacker() string { return s.Clusters[0] }
func (s *Suite) victim() string   { return s.Clusters[1] }

func (s *Suite) agentPort() string { return "127.0.0.1:" + strconv.Itoa(s.Lab.AgentPort) }

// as is a client of the hub with a token.
func (s *Suite) as(t *testing.T, token string) *kubernetes.Clientset {
	t.Helper()
	cfg := rest.AnonymousClientConfig(s.HubConfig())
	cfg.BearerToken = token
	return suite.Clientset(t, cfg)
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

// agentCA is the hub's CA for agents: the attacker has got hold of its key, or of
// something that it signed.
func (s *Suite) agentCA(t *testing.T) *pki.CA {
	t.Helper()
	data := s.MustHubSecret(t, suite.AgentSigner).Data
	ca, err := pki.ParseCA(pki.KeyPair{CertPEM: data["ca.crt"], KeyPEM: data["ca.key"]})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// write puts a certificate and the CAs that its holder trusts into files.
func write(t *testing.T, pair pki.KeyPair, trusted []byte) pki.Files {
	t.Helper()
	files := pkitest.Files(filepath.Join(t.TempDir(), "tls"))
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
