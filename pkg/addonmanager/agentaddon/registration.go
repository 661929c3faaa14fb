//lint:file-ignore SA1019 Hubs before OCM 1.2 serve addon API v1alpha1 alone.

package agentaddon

import (
	"context"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/klog/v2"
	"open-cluster-management.io/addon-framework/pkg/agent"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

func (a *Addon) registration() *agent.RegistrationOption {
	return &agent.RegistrationOption{
		CSRConfigurations: a.csrConfigurations,
		CSRApproveCheck: func(cluster *clusterv1.ManagedCluster, addon *addonv1alpha1.ManagedClusterAddOn, csr *certificatesv1.CertificateSigningRequest) bool {
			err := a.approve(cluster, addon, csr)
			if err == nil && csr.Spec.SignerName == certificatesv1.KubeAPIServerClientSignerName {
				err = a.checkPortForward(addon)
			}
			if err != nil {
				a.Metrics.rejectCSR()
				klog.Background().Info("Refused a certificate signing request", "csr", csr.Name, "cluster", cluster.Name, "requester", csr.Spec.Username, "reason", err.Error())
			}
			return err == nil
		},
		CSRSign: a.sign,
	}
}

func (a *Addon) csrConfigurations(cluster *clusterv1.ManagedCluster, addon *addonv1alpha1.ManagedClusterAddOn) ([]addonv1alpha1.RegistrationConfig, error) {
	ca, err := a.Certificates.AgentCA(context.Background())
	if err != nil {
		return nil, err
	}
	configs := []addonv1alpha1.RegistrationConfig{{
		SignerName: identity.AgentSigner,
		Subject: addonv1alpha1.Subject{
			User: identity.AgentCommonName(cluster.Name), Groups: identity.AgentOrganizations(cluster.Name),
			OrganizationUnits: unitsOf(ca, cluster),
		},
	}}
	configuration, err := a.configuration(context.Background(), addon)
	if err != nil {
		// With no answer the framework leaves things as they are. An answer
		// without the hub's credential would make OCM delete it, and a typo in
		// the configuration would cut off agents that live by it.
		return nil, err
	}
	if configuration.Spec.ProxyServer.Entrypoint.Type == v1alpha1.EntryPointTypePortForward {
		configs = append(configs, addonv1alpha1.RegistrationConfig{
			SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Subject: addonv1alpha1.Subject{
				User:   identity.AgentCommonName(cluster.Name),
				Groups: slices.Concat(identity.AgentOrganizations(cluster.Name), []string{identity.Organization}),
			},
		})
	}
	return configs, nil
}

// checkPortForward returns why an agent gets no credential of the hub, or nil.
func (a *Addon) checkPortForward(addon *addonv1alpha1.ManagedClusterAddOn) error {
	configuration, err := a.configuration(context.Background(), addon)
	if err != nil {
		return err
	}
	if kind := configuration.Spec.ProxyServer.Entrypoint.Type; kind != v1alpha1.EntryPointTypePortForward {
		return fmt.Errorf("the entrypoint is %s, and agents have a credential of the hub with PortForward only", kind)
	}
	return nil
}

// sign signs an approved request of our signer. The certificate is made of what
// the cluster is, not of what the request says; approve is asked once more,
// because approving a request is a right that others on the hub have too.
func (a *Addon) sign(cluster *clusterv1.ManagedCluster, addon *addonv1alpha1.ManagedClusterAddOn, csr *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	if csr.Spec.SignerName != identity.AgentSigner {
		return nil, nil
	}
	ca, err := a.Certificates.AgentCA(context.Background())
	if err != nil {
		return nil, err
	}
	if err := approve(cluster, addon, csr, unitsOf(ca, cluster)); err != nil {
		return nil, fmt.Errorf("signing request %q: %w", csr.Name, err)
	}
	return ca.SignRequest(csr.Spec.Request, agentLeaf(cluster.Name, unitsOf(ca, cluster)), time.Now())
}

func (a *Addon) approve(cluster *clusterv1.ManagedCluster, addon *addonv1alpha1.ManagedClusterAddOn, csr *certificatesv1.CertificateSigningRequest) error {
	ca, err := a.Certificates.AgentCA(context.Background())
	if err != nil {
		return err
	}
	return approve(cluster, addon, csr, unitsOf(ca, cluster))
}

// unitsOf returns the organizational units of a cluster's agent certificate, sorted.
// OCM's registration agent asks for a new certificate when the expected subject
// changes: at once after a change of the CA, and when the ManagedCluster was created
// again. Verifiers ignore the unit of the CA; that of the cluster is compared with the
// ManagedCluster (package hubaccess/clusters).
func unitsOf(ca *pki.CA, cluster *clusterv1.ManagedCluster) []string {
	return []string{"agent-ca:" + ca.Fingerprint(), identity.ClusterUnit(string(cluster.UID))}
}

// agentLeaf is the template of an agent's certificate: a client of the proxy
// server, and a server for the proxy API under its cluster's own host name.
func agentLeaf(cluster string, units []string) pki.Leaf {
	return pki.Leaf{
		CommonName:    identity.AgentCommonName(cluster),
		Organizations: identity.AgentOrganizations(cluster),
		// See unitsOf.
		OrganizationalUnits: units,
		DNSNames:            []string{identity.HandlerHost(cluster)},
		Client:              true, Server: true,
		Validity: certificateLife,
	}
}
