//lint:file-ignore SA1019 Hubs before OCM 1.2 serve addon API v1alpha1 alone.

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/rest"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

var everything = labels.Everything()

// clusterGroup has every agent of OCM's, as the hub authenticates it.
const clusterGroup = "system:open-cluster-management"

// allowRequests lets the clusters' OCM agents ask for certificates, as OCM does.
func (s *standIn) allowRequests(ctx context.Context) error {
	meta := metav1.ObjectMeta{Name: "scale-csr"}
	if _, err := s.kube.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create", "get", "list", "watch"}},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := s.kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: clusterGroup}},
	}, metav1.CreateOptions{})
	return err
}

func (s *standIn) folder(cluster string) string { return filepath.Join(s.dir, cluster) }

// register asks for the agent's certificate as the cluster's own OCM agent, once the addon
// manager has said what is to be asked for, and again when it says something else, and writes it
// to files when it is there.
func (s *standIn) register(ctx context.Context, cluster string, state *clusterState, addon *addonv1alpha1.ManagedClusterAddOn) error {
	if len(addon.Status.Registrations) == 0 {
		return nil
	}
	if registration := addon.Status.Registrations[0]; !equality.Semantic.DeepEqual(state.asked, registration) {
		return s.request(ctx, cluster, state, registration)
	}
	if state.request == "" {
		return nil // its certificate is there
	}
	request, err := s.requestLister.Get(state.request)
	if err != nil || len(request.Status.Certificate) == 0 {
		return nil // an event will come
	}
	for name, data := range map[string][]byte{"tls/tls.crt": request.Status.Certificate, "tls/tls.key": state.key} {
		if err := s.write(cluster, name, data); err != nil {
			return err
		}
	}
	done := state.request
	state.registered, state.request = true, ""
	return s.kube.CertificatesV1().CertificateSigningRequests().Delete(ctx, done, metav1.DeleteOptions{})
}

func (s *standIn) request(ctx context.Context, cluster string, state *clusterState, registration addonv1alpha1.RegistrationConfig) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	subject := registration.Subject
	raw, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: subject.User, Organization: subject.Groups, OrganizationalUnit: subject.OrganizationUnits},
	}, key)
	if err != nil {
		return err
	}
	as := rest.CopyConfig(s.config)
	as.Impersonate = rest.ImpersonationConfig{UserName: clusterGroup + ":" + cluster + ":agent", Groups: []string{clusterGroup, clusterGroup + ":" + cluster, "system:authenticated"}}
	client, err := certificatesclient.NewForConfig(as)
	if err != nil {
		return err
	}
	made, err := client.CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "addon-" + cluster + "-" + identity.AddonName + "-", Labels: map[string]string{
			addonv1alpha1.AddonLabelKey: identity.AddonName, clusterv1.ClusterNameLabelKey: cluster,
		}},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: raw}), SignerName: registration.SignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	state.asked = registration
	state.request, state.key = made.Name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return nil
}

// apply writes what a cluster's ManifestWork has for the agent to files, and says that the work
// is applied.
func (s *standIn) apply(ctx context.Context, cluster string, state *clusterState) error {
	works, err := s.workLister.ManifestWorks(cluster).List(everything)
	if err != nil || len(works) == 0 {
		return err
	}
	work := works[0]
	if state.generation != work.Generation {
		for _, manifest := range work.Spec.Workload.Manifests {
			if err := s.applyManifest(cluster, state, manifest); err != nil {
				return err
			}
		}
		state.generation = work.Generation
	}
	if applied := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied); applied != nil && applied.ObservedGeneration == work.Generation {
		return nil
	}
	work = work.DeepCopy()
	for _, condition := range []string{workv1.WorkApplied, workv1.WorkAvailable} {
		meta.SetStatusCondition(&work.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Simulated", ObservedGeneration: work.Generation})
	}
	_, err = s.works.WorkV1().ManifestWorks(cluster).UpdateStatus(ctx, work, metav1.UpdateOptions{})
	return err
}

func (s *standIn) applyManifest(cluster string, state *clusterState, manifest workv1.Manifest) error {
	var kind struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(manifest.Raw, &kind); err != nil {
		return err
	}
	switch kind.Kind + "/" + kind.Name {
	case "Deployment/cluster-proxy-proxy-agent":
		var agent appsv1.Deployment
		if err := json.Unmarshal(manifest.Raw, &agent); err != nil {
			return err
		}
		state.args = nil
		for _, arg := range agent.Spec.Template.Spec.Containers[0].Args[1:] { // without the subcommand
			state.args = append(state.args, strings.Replace(arg, "=/etc/", "="+s.folder(cluster)+"/", 1))
		}
	case "Secret/cluster-proxy-ca":
		var ca corev1.Secret
		if err := json.Unmarshal(manifest.Raw, &ca); err != nil {
			return err
		}
		text := ca.Data["ca.crt"]
		if text == nil {
			text = []byte(ca.StringData["ca.crt"])
		}
		return s.write(cluster, "ca/ca.crt", text)
	}
	return nil
}

// write replaces a file as a kubelet does: readers see the old or the new one.
func (s *standIn) write(cluster, name string, data []byte) error {
	file := filepath.Join(s.folder(cluster), name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file+".partial", data, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".partial", file)
}

// serverConfig is that of a server with a certificate of its own.
func serverConfig(pair pki.KeyPair) (*tls.Config, error) {
	certificate, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		return nil, fmt.Errorf("loading a certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}, nil
}
