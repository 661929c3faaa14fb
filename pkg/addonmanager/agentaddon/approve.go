package agentaddon

import (
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	operatorv1 "open-cluster-management.io/api/operator/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

const (
	clusterUserPrefix = "system:open-cluster-management:"
	// requestedDNSName is what OCM's registration agent puts into every request.
	// It reaches no certificate.
	requestedDNSName = identity.AddonName + ".addon.open-cluster-management.io"

	// grpcServer makes the requests of clusters that joined by OCM's gRPC server.
	// OCM's operator gives it this account, and OCM's own approvers know no other.
	grpcServer      = "system:serviceaccount:open-cluster-management-hub:grpc-server-sa"
	grpcServerGroup = "system:serviceaccounts:open-cluster-management-hub"

	// A cluster that joined by AWS IRSA has these annotations, from its first moment.
	irsaARN         = operatorv1.ClusterAnnotationsKeyPrefix + "/managed-cluster-arn"
	irsaRole        = operatorv1.ClusterAnnotationsKeyPrefix + "/managed-cluster-iam-role-suffix"
	irsaGroupPrefix = "open-cluster-management:"
)

// allowedUsages are those that OCM asks for. The signer decides which ones the
// certificate has.
var allowedUsages = []certificatesv1.KeyUsage{
	certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth,
}

// certificateLife is the lifetime of an agent's certificate, and the longest that a
// request for a credential of the hub may ask for. OCM renews both when a fifth is
// left.
const certificateLife = 30 * 24 * time.Hour

// approve returns why a request is not approved, or nil. An attacker may choose every
// field of the request except its author, which the kube-apiserver has written. units
// are the organizational units that an agent's certificate has now, sorted.
func approve(cluster *clusterv1.ManagedCluster, addon *addonv1alpha1.ManagedClusterAddOn, csr *certificatesv1.CertificateSigningRequest, units []string) error {
	if !cluster.Spec.HubAcceptsClient || cluster.DeletionTimestamp != nil {
		return fmt.Errorf("cluster %q is not accepted, or is being deleted", cluster.Name)
	}
	if addon.Name != identity.AddonName || addon.Namespace != cluster.Name || addon.DeletionTimestamp != nil {
		return fmt.Errorf("addon %q of %q is not this one of cluster %q, or is being deleted", addon.Name, addon.Namespace, cluster.Name)
	}
	if err := checkRequester(cluster, csr); err != nil {
		return err
	}
	organizations, err := expectedOrganizations(cluster.Name, csr.Spec.SignerName)
	if err != nil {
		return err
	}
	if !slices.Contains(csr.Spec.Usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("usages %q lack %q", csr.Spec.Usages, certificatesv1.UsageClientAuth)
	}
	if term := csr.Spec.ExpirationSeconds; csr.Spec.SignerName != identity.AgentSigner && term != nil && *term > int32(certificateLife/time.Second) {
		return fmt.Errorf("expirationSeconds is %d, at most %d may be asked for: lower clientCertExpirationSeconds of the Klusterlet", *term, int32(certificateLife/time.Second))
	}
	for _, usage := range csr.Spec.Usages {
		if !slices.Contains(allowedUsages, usage) {
			return fmt.Errorf("usage %q is not one of %q", usage, allowedUsages)
		}
	}
	request, err := pki.ParseRequest(csr.Spec.Request)
	if err != nil {
		return fmt.Errorf("parsing the request: %w", err)
	}
	if want := identity.AgentCommonName(cluster.Name); request.CommonName != want {
		return fmt.Errorf("common name is %q, want %q", request.CommonName, want)
	}
	if got := slices.Sorted(slices.Values(request.Organizations)); !slices.Equal(got, organizations) {
		return fmt.Errorf("organizations are %q, want %q", got, organizations)
	}
	if csr.Spec.SignerName != identity.AgentSigner {
		units = nil
	}
	if got := slices.Sorted(slices.Values(request.OrganizationalUnits)); !slices.Equal(got, units) {
		return fmt.Errorf("organizational units are %q, want %q", got, units)
	}
	if others := slices.Concat(request.OtherSubject, request.OtherSANs, request.OtherExtensions); len(others) > 0 {
		return fmt.Errorf("the request asks for %q, which no agent may have", others)
	}
	for _, name := range request.DNSNames {
		if name != requestedDNSName {
			return fmt.Errorf("DNS name is %q, only %q may be asked for", name, requestedDNSName)
		}
	}
	return nil
}

// checkRequester makes sure that the cluster's own OCM agent asks. Its name depends on
// the way in which the cluster joined. The kube-apiserver has written the names into
// the request; the annotation counts only if OCM's gRPC server is the requester.
func checkRequester(cluster *clusterv1.ManagedCluster, csr *certificatesv1.CertificateSigningRequest) error {
	name, groups := csr.Spec.Username, csr.Spec.Groups
	own := clusterUserPrefix + cluster.Name
	switch {
	case name == grpcServer && slices.Contains(groups, grpcServerGroup):
		// The server sets this annotation to the user it authenticated, whatever the agent wrote there.
		if name = csr.Annotations[operatorv1.CSRUsernameAnnotation]; !isAgentOf(cluster.Name, name) {
			return fmt.Errorf("requester %q of OCM's gRPC server is not an agent of cluster %q", name, cluster.Name)
		}
	case name == cluster.Name && joinedByIRSA(cluster):
		if want := irsaGroupPrefix + cluster.Name; !slices.Contains(groups, want) {
			return fmt.Errorf("requester %q is not in group %q", name, want)
		}
	case !isAgentOf(cluster.Name, name):
		return fmt.Errorf("requester %q is not an agent of cluster %q", name, cluster.Name)
	case !slices.Contains(groups, own):
		return fmt.Errorf("requester %q is not in group %q", name, own)
	}
	return nil
}

// isAgentOf reports whether a name is system:open-cluster-management:<cluster>:<agent>.
func isAgentOf(cluster, name string) bool {
	agent, ok := strings.CutPrefix(name, clusterUserPrefix+cluster+":")
	return ok && agent != "" && !strings.Contains(agent, ":")
}

// joinedByIRSA reports whether the agent of a cluster is an AWS role, which EKS gives
// the names that OCM's hub asked for: the cluster's as user, and a group of its own.
func joinedByIRSA(cluster *clusterv1.ManagedCluster) bool {
	return cluster.Annotations[irsaARN] != "" && cluster.Annotations[irsaRole] != ""
}

// expectedOrganizations are those of a subject, by signer, sorted.
func expectedOrganizations(cluster, signer string) ([]string, error) {
	switch signer {
	case identity.AgentSigner:
		return slices.Sorted(slices.Values(identity.AgentOrganizations(cluster))), nil
	case certificatesv1.KubeAPIServerClientSignerName:
		return slices.Sorted(slices.Values(append(identity.AgentOrganizations(cluster), identity.Organization))), nil
	}
	return nil, fmt.Errorf("signer %q is not one of this addon's", signer)
}
