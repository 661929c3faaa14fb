package agentaddon

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	operatorv1 "open-cluster-management.io/api/operator/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// units are the organizational units of the day.
var units = []string{"agent-ca:0123456789abcdef0123456789abcdef", "cluster-uid:6e2a3c0f-1111-2222-3333-444455556666"}

// attempt is a request and who makes it, for which cluster.
type attempt struct {
	cluster clusterv1.ManagedCluster
	addon   addonv1alpha1.ManagedClusterAddOn
	spec    certificatesv1.CertificateSigningRequestSpec
	notes   map[string]string // annotations
	request x509.CertificateRequest
	key     any // nil for a good one
}

// csr is the request as the hub has it.
func (a *attempt) csr() *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Annotations: a.notes}, Spec: a.spec}
}

// honest is what OCM's registration agent of cluster1 asks for.
func honest() *attempt {
	return &attempt{
		cluster: clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster1", UID: "6e2a3c0f-1111-2222-3333-444455556666"}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}},
		addon:   addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName, Namespace: "cluster1"}},
		spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: identity.AgentSigner,
			Username:   "system:open-cluster-management:cluster1:agent",
			Groups:     []string{"system:open-cluster-management:cluster1", "system:open-cluster-management", "system:authenticated"},
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth},
		},
		request: x509.CertificateRequest{
			Subject:  pkix.Name{CommonName: identity.AgentCommonName("cluster1"), Organization: identity.AgentOrganizations("cluster1"), OrganizationalUnit: units},
			DNSNames: []string{requestedDNSName},
		},
	}
}

// hubs makes of an attempt what OCM's registration agent asks of the hub's signer.
func hubs(a *attempt) {
	a.spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
	a.request.Subject.OrganizationalUnit = nil
	a.request.Subject.Organization = append(a.request.Subject.Organization, identity.Organization)
}

func (a *attempt) approve(t *testing.T) error {
	t.Helper()
	key := a.key
	if key == nil {
		fresh, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		key = fresh
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &a.request, key)
	if err != nil {
		t.Fatal(err)
	}
	a.spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return approve(&a.cluster, &a.addon, a.csr(), units)
}

// byGRPC makes of an attempt one that OCM's gRPC server passes on for an agent.
func byGRPC(a *attempt, agent string) {
	a.spec.Username = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa"
	a.spec.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:open-cluster-management-hub", "system:authenticated"}
	a.notes = map[string]string{operatorv1.CSRUsernameAnnotation: agent}
}

// byIRSA makes of an attempt one of a cluster that joined with an AWS role. The
// names are those of OCM's access entry in EKS.
func byIRSA(a *attempt) {
	a.spec.Username = "cluster1"
	a.spec.Groups = []string{"open-cluster-management:cluster1", "system:authenticated"}
	a.cluster.Annotations = map[string]string{
		"agent.open-cluster-management.io/managed-cluster-arn":             "arn:aws:eks:us-west-2:123456789012:cluster/cluster1",
		"agent.open-cluster-management.io/managed-cluster-iam-role-suffix": "7f8141296c75f2871e3d030f85c35692",
	}
}

func TestHonestRequestsAreApproved(t *testing.T) {
	if err := honest().approve(t); err != nil {
		t.Error(err)
	}
	for name, join := range map[string]func(*attempt){
		"by gRPC": func(a *attempt) { byGRPC(a, "system:open-cluster-management:cluster1:agent") },
		"by gRPC, of the hub's signer": func(a *attempt) {
			byGRPC(a, "system:open-cluster-management:cluster1:agent")
			hubs(a)
		},
		"by AWS IRSA": byIRSA,
		// An annotation that means nothing does no harm.
		"by CSR, with another name in the annotation": func(a *attempt) {
			a.notes = map[string]string{operatorv1.CSRUsernameAnnotation: "system:open-cluster-management:cluster2:agent"}
		},
	} {
		a := honest()
		join(a)
		if err := a.approve(t); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	reordered := honest()
	slices.Reverse(reordered.request.Subject.Organization)
	reordered.request.Subject.OrganizationalUnit = []string{units[1], units[0]}
	if err := reordered.approve(t); err != nil {
		t.Errorf("with organizations and units in another order: %v", err)
	}
	for name, term := range map[string]*int32{"the hub's": nil, "30 days": ptr.To[int32](30 * 24 * 3600)} {
		hub := honest()
		hubs(hub)
		hub.spec.ExpirationSeconds = term
		if err := hub.approve(t); err != nil {
			t.Errorf("for the hub's kube-apiserver, term %s: %v", name, err)
		}
	}
	// Our signer signs for 30 days, whatever is asked for.
	long := honest()
	long.spec.ExpirationSeconds = ptr.To[int32](365 * 24 * 3600)
	if err := long.approve(t); err != nil {
		t.Errorf("for a year, of our signer: %v", err)
	}
}

func TestHostileRequestsAreRefused(t *testing.T) {
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	for name, spoil := range map[string]func(a *attempt){
		"foreign common name":        func(a *attempt) { a.request.Subject.CommonName = identity.AgentCommonName("cluster2") },
		"client role as common name": func(a *attempt) { a.request.Subject.CommonName = string(identity.RoleProxyAPI) },
		"no common name":             func(a *attempt) { a.request.Subject.CommonName = "" },
		"extra organization": func(a *attempt) {
			a.request.Subject.Organization = append(a.request.Subject.Organization, "system:masters")
		},
		"no organization":                 func(a *attempt) { a.request.Subject.Organization = nil },
		"organization of another cluster": func(a *attempt) { a.request.Subject.Organization = identity.AgentOrganizations("cluster2") },
		"hub's organization with our signer": func(a *attempt) {
			a.request.Subject.Organization = append(a.request.Subject.Organization, identity.Organization)
		},
		"another organizational unit":  func(a *attempt) { a.request.Subject.OrganizationalUnit = []string{"x"} },
		"a second organizational unit": func(a *attempt) { a.request.Subject.OrganizationalUnit = append(slices.Clone(units), "x") },
		"the UID of an earlier cluster of that name": func(a *attempt) {
			a.request.Subject.OrganizationalUnit = []string{units[0], identity.ClusterUnit("another")}
		},
		"no UID":                 func(a *attempt) { a.request.Subject.OrganizationalUnit = units[:1] },
		"no organizational unit": func(a *attempt) { a.request.Subject.OrganizationalUnit = nil },
		"hub's credential with our unit": func(a *attempt) {
			hubs(a)
			a.request.Subject.OrganizationalUnit = units
		},
		"second common name": func(a *attempt) {
			a.request.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: identity.AgentCommonName("cluster2")}}
		},
		"DNS name of another cluster": func(a *attempt) { a.request.DNSNames = []string{identity.HandlerHost("cluster2")} },
		"DNS name of its own":         func(a *attempt) { a.request.DNSNames = []string{identity.HandlerHost("cluster1")} },
		"wildcard":                    func(a *attempt) { a.request.DNSNames = []string{"*"} },
		"IP address":                  func(a *attempt) { a.request.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} },
		"email address":               func(a *attempt) { a.request.EmailAddresses = []string{"a@example.com"} },
		"CA:TRUE": func(a *attempt) {
			a.request.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 0x03, 0x01, 0x01, 0xff}}}
		},
		"weak key":          func(a *attempt) { a.key = weak },
		"usage cert sign":   func(a *attempt) { a.spec.Usages = append(a.spec.Usages, certificatesv1.UsageCertSign) },
		"usage server auth": func(a *attempt) { a.spec.Usages = append(a.spec.Usages, certificatesv1.UsageServerAuth) },
		"usage any":         func(a *attempt) { a.spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageAny} },
		"no usage":          func(a *attempt) { a.spec.Usages = nil },
		"no client auth":    func(a *attempt) { a.spec.Usages = a.spec.Usages[:2] },
		"hub's credential for longer than ours": func(a *attempt) {
			hubs(a)
			a.spec.ExpirationSeconds = ptr.To[int32](30*24*3600 + 1)
		},
		"another signer":               func(a *attempt) { a.spec.SignerName = "kubernetes.io/kubelet-serving" },
		"upstream's signer":            func(a *attempt) { a.spec.SignerName = "open-cluster-management.io/proxy-agent-signer" },
		"no signer":                    func(a *attempt) { a.spec.SignerName = "" },
		"requester of another cluster": func(a *attempt) { a.spec.Username = "system:open-cluster-management:cluster2:agent" },
		"requester with a longer name": func(a *attempt) { a.spec.Username = "system:open-cluster-management:cluster10:agent" },
		"requester without an agent":   func(a *attempt) { a.spec.Username = "system:open-cluster-management:cluster1:" },
		"requester is an addon":        func(a *attempt) { a.spec.Username = "system:open-cluster-management:cluster1:addon:x" },
		"requester is anybody":         func(a *attempt) { a.spec.Username = "kubernetes-admin" },
		"requester without its group":  func(a *attempt) { a.spec.Groups = []string{"system:authenticated"} },
		"group of another cluster":     func(a *attempt) { a.spec.Groups = []string{"system:open-cluster-management:cluster2"} },
		"annotation of the gRPC server, by another cluster's agent": func(a *attempt) {
			byGRPC(a, "system:open-cluster-management:cluster1:agent")
			a.spec.Username = "system:open-cluster-management:cluster2:agent"
			a.spec.Groups = []string{"system:open-cluster-management:cluster2", "system:open-cluster-management", "system:authenticated"}
		},
		"annotation of the gRPC server, by anybody": func(a *attempt) {
			byGRPC(a, "system:open-cluster-management:cluster1:agent")
			a.spec.Username = "kubernetes-admin"
		},
		"annotation of the gRPC server, by an account of that name elsewhere": func(a *attempt) {
			byGRPC(a, "system:open-cluster-management:cluster1:agent")
			a.spec.Username = "system:serviceaccount:cluster2:grpc-server-sa"
			a.spec.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:cluster2", "system:authenticated"}
		},
		"annotation of the gRPC server, by another account beside it": func(a *attempt) {
			byGRPC(a, "system:open-cluster-management:cluster1:agent")
			a.spec.Username = "system:serviceaccount:open-cluster-management-hub:placement-controller-sa"
		},
		"name of the gRPC server without its group": func(a *attempt) {
			byGRPC(a, "system:open-cluster-management:cluster1:agent")
			a.spec.Groups = []string{"system:authenticated"}
		},
		"by gRPC, agent of another cluster": func(a *attempt) { byGRPC(a, "system:open-cluster-management:cluster2:agent") },
		"by gRPC, longer name":              func(a *attempt) { byGRPC(a, "system:open-cluster-management:cluster10:agent") },
		"by gRPC, no agent":                 func(a *attempt) { byGRPC(a, "system:open-cluster-management:cluster1:") },
		"by gRPC, an addon":                 func(a *attempt) { byGRPC(a, identity.AgentCommonName("cluster1")) },
		"by gRPC, bootstrap": func(a *attempt) {
			byGRPC(a, "system:serviceaccount:open-cluster-management:agent-registration-bootstrap")
		},
		"by gRPC, nobody": func(a *attempt) { byGRPC(a, "<nil>") },
		"by gRPC, the server itself": func(a *attempt) {
			byGRPC(a, "system:serviceaccount:open-cluster-management-hub:grpc-server-sa")
		},
		"by gRPC, without an annotation": func(a *attempt) {
			byGRPC(a, "")
			a.notes = nil
		},
		"by gRPC, for another cluster's certificate": func(a *attempt) {
			byGRPC(a, "system:open-cluster-management:cluster1:agent")
			a.request.Subject.CommonName = identity.AgentCommonName("cluster2")
		},
		"by IRSA, another cluster's role": func(a *attempt) {
			byIRSA(a)
			a.spec.Username, a.spec.Groups = "cluster2", []string{"open-cluster-management:cluster2"}
		},
		"by IRSA, name without its group": func(a *attempt) {
			byIRSA(a)
			a.spec.Groups = []string{"open-cluster-management:cluster2", "system:authenticated"}
		},
		"by IRSA, group without its name": func(a *attempt) {
			byIRSA(a)
			a.spec.Username = "jane"
		},
		"named like the cluster, which did not join by IRSA": func(a *attempt) {
			byIRSA(a)
			a.cluster.Annotations = nil
		},
		"named like the cluster, of which only an ARN is known": func(a *attempt) {
			byIRSA(a)
			delete(a.cluster.Annotations, "agent.open-cluster-management.io/managed-cluster-iam-role-suffix")
		},
		"cluster not accepted":     func(a *attempt) { a.cluster.Spec.HubAcceptsClient = false },
		"cluster being deleted":    func(a *attempt) { a.cluster.DeletionTimestamp = &now },
		"addon being deleted":      func(a *attempt) { a.addon.DeletionTimestamp = &now },
		"addon of another cluster": func(a *attempt) { a.addon.Namespace = "cluster2" },
		"another addon":            func(a *attempt) { a.addon.Name = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			a := honest()
			spoil(a)
			if err := a.approve(t); err == nil {
				t.Error("approved")
			}
		})
	}
	t.Run("garbage", func(t *testing.T) {
		a := honest()
		a.spec.Request = []byte("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n")
		if err := approve(&a.cluster, &a.addon, a.csr(), units); err == nil {
			t.Error("approved")
		}
	})
}

// TestTemplateNamesOneCluster asks for other names: the certificate has the template's.
func TestTemplateNamesOneCluster(t *testing.T) {
	leaf := agentLeaf("cluster1", units)
	if leaf.CommonName != identity.AgentCommonName("cluster1") || !slices.Equal(leaf.DNSNames, []string{identity.HandlerHost("cluster1")}) ||
		len(leaf.IPs) > 0 || leaf.Validity > 30*24*time.Hour {
		t.Errorf("template is %+v; want only the handler's host of cluster1, and 30 days at most", leaf)
	}
}

// FuzzApprove wants a request approved only for the cluster's own agent, and the template
// signed, whatever the request holds.
func FuzzApprove(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	ca := pkitest.NewCA(f, "agents")
	good := honest()
	own := "system:open-cluster-management:cluster1"
	f.Add(own+":agent", own, "", identity.AgentSigner, good.request.Subject.CommonName, strings.Join(units, ","), requestedDNSName, []byte{}, []byte{})
	f.Add(own+":agent", own, "", identity.AgentSigner, good.request.Subject.CommonName, strings.Join(units, ","), "*", []byte{0x30, 0x03, 0x01, 0x01, 0xff}, []byte{})
	f.Add("system:open-cluster-management:cluster2:agent", own, own+":agent", identity.AgentSigner, identity.AgentCommonName("cluster2"), "", "", []byte{}, []byte("x"))
	f.Add(grpcServer, grpcServerGroup, own+":agent", identity.AgentSigner, good.request.Subject.CommonName, strings.Join(units, ","), requestedDNSName, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, user, group, note, signer, commonName, ou, dns string, extension, raw []byte) {
		a := honest()
		a.notes = map[string]string{operatorv1.CSRUsernameAnnotation: note}
		a.spec.Username, a.spec.Groups, a.spec.SignerName = user, []string{group}, signer
		a.request.Subject.CommonName, a.request.Subject.OrganizationalUnit, a.request.DNSNames = commonName, strings.Split(ou, ","), []string{dns}
		if len(extension) > 0 {
			a.request.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Value: extension}}
		}
		der := raw
		if len(raw) == 0 {
			made, err := x509.CreateCertificateRequest(rand.Reader, &a.request, key)
			if err != nil {
				return // not even crypto/x509 would write it
			}
			der = made
		}
		a.spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
		if approve(&a.cluster, &a.addon, a.csr(), units) != nil {
			return
		}
		if user == grpcServer && group == grpcServerGroup {
			user, group = note, own
		}
		agent, ok := strings.CutPrefix(user, own+":")
		if !ok || agent == "" || strings.Contains(agent, ":") || group != own || signer != identity.AgentSigner || len(extension) > 0 ||
			commonName != identity.AgentCommonName("cluster1") || !slices.Equal(slices.Sorted(strings.SplitSeq(ou, ",")), units) || dns != requestedDNSName {
			t.Fatalf("approved for user %q of group %q: %q %q %q %x", user, group, commonName, ou, dns, extension)
		}
		signed, err := ca.SignRequest(a.spec.Request, agentLeaf("cluster1", units), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		checkAgentCertificate(t, signed)
	})
}

// checkAgentCertificate compares every field that means something.
func checkAgentCertificate(t *testing.T, signed []byte) {
	t.Helper()
	block, _ := pem.Decode(signed)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if cert.IsCA || !cert.BasicConstraintsValid || cert.KeyUsage != x509.KeyUsageDigitalSignature ||
		!slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}) || len(cert.UnknownExtKeyUsage) > 0 ||
		cert.Subject.CommonName != identity.AgentCommonName("cluster1") || !slices.Equal(cert.DNSNames, []string{identity.HandlerHost("cluster1")}) ||
		len(cert.IPAddresses)+len(cert.EmailAddresses)+len(cert.URIs) > 0 || time.Until(cert.NotAfter) > 30*24*time.Hour {
		t.Errorf("signed %+v; want only the handler's host of cluster1, and 30 days at most", cert)
	}
}

// A request that was approved by somebody else is looked at again before it is
// signed, and the certificate has nothing of it but the key.
func TestSign(t *testing.T) {
	pair, err := pki.NewCA("agents", time.Now(), 365*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.ParseCA(pair)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: certificates.AgentSignerSecret}, Data: map[string][]byte{"ca.crt": pair.CertPEM, "ca.key": pair.KeyPEM}}
	addon := &Addon{Certificates: certificates.Store{Client: fake.NewClientBuilder().WithObjects(secret).Build(), Namespace: hubNamespace}}
	a := honest()
	a.request.Subject.OrganizationalUnit = unitsOf(ca, &a.cluster)
	_ = a.approve(t) // makes the request
	signed, err := addon.sign(&a.cluster, &a.addon, a.csr())
	if err != nil {
		t.Fatal(err)
	}
	checkAgentCertificate(t, signed)
	hostile := honest()
	hostile.request.Subject.OrganizationalUnit = unitsOf(ca, &hostile.cluster)
	hostile.request.Subject.CommonName = identity.AgentCommonName("cluster2")
	_ = hostile.approve(t)
	if signed, err := addon.sign(&hostile.cluster, &hostile.addon, hostile.csr()); err == nil || signed != nil {
		t.Error("signed for another cluster because somebody approved it")
	}
}
