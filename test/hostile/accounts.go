package hostile

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// testServiceAccounts reads Secrets with the tokens of the addon's own pods.
func (s *Suite) testServiceAccounts(t *testing.T) {
	for _, test := range []struct {
		account string
		// signs is true for the one who may read the CAs' keys.
		signs bool
	}{
		{"cluster-proxy-addon-manager", true}, {"cluster-proxy", false}, {"default", false}, {"cluster-proxy-addon-user", false}, {"cluster-proxy-server", false},
	} {
		t.Run(test.account, func(t *testing.T) {
			n := watchFiles(t, s.Lab.AuditLog("hub"))
			token, err := s.Hub.CoreV1().ServiceAccounts(s.Namespace).CreateToken(t.Context(), test.account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			as := s.as(t, token.Status.Token)
			secrets := map[string]string{"": "any", "kube-system": "any", s.attacker(): "any", "default": "any"}
			if !test.signs {
				secrets[s.Namespace] = suite.HubSigner
			}
			for namespace, name := range secrets {
				if _, err := as.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
					t.Errorf("listing Secrets in namespace %q: %v, want forbidden", namespace, err)
				}
				if namespace == "" {
					continue
				}
				if _, err := as.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsForbidden(err) {
					t.Errorf("reading Secret %q in namespace %q: %v, want forbidden", name, namespace, err)
				}
			}
			if !test.signs {
				if _, err := as.CoreV1().Secrets(s.Namespace).Get(t.Context(), suite.AgentSigner, metav1.GetOptions{}); !apierrors.IsForbidden(err) {
					t.Errorf("reading the agent CA: %v, want forbidden", err)
				}
			}
			n.check(t, 0, "system:serviceaccount:"+s.Namespace+":"+test.account, `"secrets"`, `"code":403`)
		})
	}
}

// testAgentOnTheHub uses what an agent has as a credential of the hub's API. The
// hub knows nobody of that CA, and has no rights for the name in it either.
func (s *Suite) testAgentOnTheHub(t *testing.T) {
	pair := s.agentCertificate(t, s.attacker())
	admin := s.HubConfig()
	if err := rest.LoadTLSFiles(admin); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]*rest.Config{
		"certificate": {Host: admin.Host, TLSClientConfig: rest.TLSClientConfig{CAData: admin.CAData, CertData: pair.CertPEM, KeyData: pair.KeyPEM}},
		"name": {Host: admin.Host, TLSClientConfig: admin.TLSClientConfig, Impersonate: rest.ImpersonationConfig{
			UserName: identity.AgentCommonName(s.attacker()), Groups: append(identity.AgentOrganizations(s.attacker()), "system:authenticated"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := watchFiles(t, s.Lab.AuditLog("hub"))
			as := suite.Clientset(t, cfg)
			refused := func(what string, err error) {
				t.Helper()
				if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
					t.Errorf("%s: %v, want it refused", what, err)
				}
			}
			_, err := as.CoreV1().Secrets(s.Namespace).Get(t.Context(), suite.HubSigner, metav1.GetOptions{})
			refused("reading the hub CA", err)
			_, err = as.CoreV1().Pods(s.Namespace).List(t.Context(), metav1.ListOptions{})
			refused("listing pods", err)
			_, err = as.CoreV1().Secrets(s.victim()).List(t.Context(), metav1.ListOptions{})
			refused("listing the victim's Secrets", err)
			err = as.CoordinationV1().Leases(s.victim()).Delete(t.Context(), identity.AddonName, metav1.DeleteOptions{})
			refused("deleting the victim's Lease", err)
			word := `"code":403`
			if name == "certificate" {
				word = `"code":401`
			}
			n.check(t, 0, word, s.Namespace)
		})
	}
	// Nor is there another credential of the hub where the agent runs.
	secrets, err := s.managed[s.attacker()].CoreV1().Secrets(identity.DefaultAgentNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets.Items {
		if len(secret.Data["kubeconfig"]) > 0 {
			t.Errorf("Secret %q of the agent holds a kubeconfig", secret.Name)
		}
	}
}
