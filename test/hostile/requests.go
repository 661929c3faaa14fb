//lint:file-ignore SA1019 Hubs before OCM 1.2 serve addon API v1alpha1 alone.

package hostile

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	operatorv1 "open-cluster-management.io/api/operator/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// request is a certificate signing request and who makes it, at first the one
// that OCM makes for the attacker's cluster.
type request struct {
	cluster   string // of its labels
	requester rest.ImpersonationConfig
	note      string // who it is from, in the annotation of OCM's gRPC server
	signer    string
	usages    []certificatesv1.KeyUsage
	template  x509.CertificateRequest
	key       crypto.Signer
}

func (s *Suite) honest(t *testing.T) *request {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &request{
		cluster: s.attacker(), requester: ocmAgent(s.attacker()), signer: identity.AgentSigner, key: key,
		usages:   []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		template: x509.CertificateRequest{Subject: s.subject(t, s.attacker())},
	}
}

// subject is what the agent of a cluster asks for. Its units are those that the
// addon asks OCM for.
func (s *Suite) subject(t *testing.T, cluster string) pkix.Name {
	t.Helper()
	addon, err := s.Addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Get(t.Context(), identity.AddonName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) { // OCM takes it away from a cluster that is not accepted
		t.Fatal(err)
	}
	name := pkix.Name{CommonName: identity.AgentCommonName(cluster), Organization: identity.AgentOrganizations(cluster)}
	for _, registration := range addon.Status.Registrations {
		if registration.SignerName == identity.AgentSigner {
			name.OrganizationalUnit = registration.Subject.OrganizationUnits
		}
	}
	return name
}

// ocmAgent is the identity of a cluster's own OCM agent on the hub.
func ocmAgent(cluster string) rest.ImpersonationConfig {
	return rest.ImpersonationConfig{
		UserName: "system:open-cluster-management:" + cluster + ":agent",
		Groups:   []string{"system:open-cluster-management:" + cluster, "system:open-cluster-management:managed-clusters", "system:authenticated"},
	}
}

// grpcServer is the identity of OCM's gRPC server, which makes the requests of
// clusters that joined by it. The last group stands for its rights, which it has
// where it runs.
func grpcServer() rest.ImpersonationConfig {
	return rest.ImpersonationConfig{
		UserName: "system:serviceaccount:open-cluster-management-hub:grpc-server-sa",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:open-cluster-management-hub", "system:authenticated", "system:masters"},
	}
}

// byGRPC is a request that OCM's gRPC server makes for an agent.
func byGRPC(r *request, agent rest.ImpersonationConfig) {
	r.requester, r.note = grpcServer(), agent.UserName
}

// signsHonest asks for what a cluster may have, in each way to join.
func (s *Suite) signsHonest(t *testing.T) {
	t.Helper()
	joinedByGRPC := s.honest(t)
	byGRPC(joinedByGRPC, ocmAgent(s.attacker()))
	for _, r := range []*request{s.honest(t), joinedByGRPC} {
		name := s.ask(t, r)
		suite.Eventually(t, "the honest request of "+r.requester.UserName+" to be signed", func() error {
			csr, err := s.Hub.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
			if err == nil && len(csr.Status.Certificate) == 0 {
				err = fmt.Errorf("conditions %v, no certificate", csr.Status.Conditions)
			}
			return err
		})
	}
}

// testRequests asks for certificates that nobody may have, as far as OCM and the hub's
// kube-apiserver have a part in it; agentaddon's TestHostileRequestsAreRefused has the rest.
// Before, an honest request shows that nothing else is wrong with them.
func (s *Suite) testRequests(t *testing.T) {
	s.signsHonest(t)
	s.makeCluster(t, "unaccepted", false)
	unaccepted := s.subject(t, "unaccepted")
	for attack, change := range map[string]func(r *request){
		"foreign CN and O": func(r *request) {
			r.template.Subject = s.subject(t, s.victim())
		},
		"hub's signer":                func(r *request) { r.signer = certificatesv1.KubeAPIServerClientSignerName },
		"another cluster's requester": func(r *request) { r.requester = ocmAgent(s.victim()) },
		"annotation of the gRPC server": func(r *request) {
			r.cluster, r.template.Subject, r.note = s.victim(), s.subject(t, s.victim()), ocmAgent(s.victim()).UserName
		},
		"another cluster, by the gRPC server": func(r *request) {
			byGRPC(r, r.requester)
			r.cluster, r.template.Subject = s.victim(), s.subject(t, s.victim())
		},
		"another cluster's agent, by the gRPC server": func(r *request) { byGRPC(r, ocmAgent(s.victim())) },
		"nobody, by the gRPC server":                  func(r *request) { byGRPC(r, rest.ImpersonationConfig{}) },
		"unaccepted cluster": func(r *request) {
			r.cluster, r.requester, r.template.Subject = "unaccepted", ocmAgent("unaccepted"), unaccepted
			// OCM has taken the right to ask from it already; suppose that it had not.
			r.requester.Groups = append(r.requester.Groups, "system:masters")
		},
	} {
		t.Run(attack, func(t *testing.T) {
			n := s.watch(t, addonManager, "cluster_proxy_manager_csrs_rejected_total")
			r := s.honest(t)
			change(r)
			name := s.ask(t, r)
			n.check(t, 1, "Refused a certificate signing request", name, "reason=")
			s.unsigned(t, name)
		})
	}
	// Those that the addon manager has nothing to do with: nobody signs them.
	// A refusal of a later one shows that it has had the time to look.
	for attack, change := range map[string]func(r *request){
		"foreign signer": func(r *request) { r.signer = "example.com/signer" },
		"deleted addon":  func(r *request) { r.cluster = "no-addon" },
	} {
		t.Run(attack, func(t *testing.T) {
			n := s.watch(t, addonManager, "cluster_proxy_manager_csrs_rejected_total")
			r := s.honest(t)
			change(r)
			name := s.ask(t, r)
			next := s.honest(t)
			next.template.Subject.CommonName = "next"
			n.check(t, 1, "Refused a certificate signing request", s.ask(t, next))
			s.unsigned(t, name)
		})
	}
}

func (s *Suite) unsigned(t *testing.T, name string) {
	t.Helper()
	csr, err := s.Hub.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(csr.Status.Certificate) > 0 {
		t.Error("the request was signed")
	}
	for _, condition := range csr.Status.Conditions {
		if condition.Type == certificatesv1.CertificateApproved {
			t.Errorf("the request was approved: %s", condition.Message)
		}
	}
}

// ask makes a request as its requester, as OCM's registration agent does.
func (s *Suite) ask(t *testing.T, r *request) string {
	t.Helper()
	cfg := s.HubConfig()
	cfg.Impersonate = r.requester
	der, err := x509.CreateCertificateRequest(rand.Reader, &r.template, r.key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := suite.Clientset(t, cfg).CertificatesV1().CertificateSigningRequests().Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "addon-" + r.cluster + "-cluster-proxy-", Annotations: map[string]string{operatorv1.CSRUsernameAnnotation: r.note},
			Labels: map[string]string{"open-cluster-management.io/cluster-name": r.cluster, "open-cluster-management.io/addon-name": identity.AddonName},
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: r.signer, Usages: r.usages,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("asking for a certificate as %s: %v", r.requester.UserName, err)
	}
	t.Cleanup(func() {
		_ = s.Hub.CertificatesV1().CertificateSigningRequests().Delete(context.Background(), csr.Name, metav1.DeleteOptions{})
	})
	return csr.Name
}

// makeCluster registers a cluster that the hub accepts or not, with the addon in its namespace, for
// as long as the test runs.
func (s *Suite) makeCluster(t *testing.T, name string, accepted bool) {
	t.Helper()
	namespaces, addons := s.Hub.CoreV1().Namespaces(), s.Addons.AddonV1alpha1().ManagedClusterAddOns(name)
	cluster := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"hubAcceptsClient": accepted},
	}}
	// With this, the lab's OCM takes it for one that was accepted by itself
	// already, and does not do so again.
	cluster.SetAnnotations(map[string]string{"open-cluster-management.io/automatically-accepted-on": "2026-01-01T00:00:00Z"})
	_, err1 := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	_, err2 := s.ManagedClusters.Create(t.Context(), cluster, metav1.CreateOptions{})
	_, err3 := addons.Create(t.Context(), &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName}}, metav1.CreateOptions{})
	for _, err := range []error{err1, err2, err3} {
		// The placement may have put the addon there already.
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx := context.Background()
		_ = addons.Delete(ctx, identity.AddonName, metav1.DeleteOptions{})
		_ = s.ManagedClusters.Delete(ctx, name, metav1.DeleteOptions{})
		_ = namespaces.Delete(ctx, name, metav1.DeleteOptions{})
	})
}
