package identity

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Names that upstream's users, OCM and the charts depend on.
const (
	// AddonName names the ClusterManagementAddOn, every ManagedClusterAddOn
	// and the Lease on the managed cluster.
	AddonName = "cluster-proxy"
	// AddonManager names the addon manager: its Deployment, its Lease, its events,
	// and the owner of fields that it writes.
	AddonManager = "cluster-proxy-addon-manager"
	// agentUser is the last part of an agent's common name.
	agentUser = "proxy-agent"
	// AgentSigner is the CSR signer that the addon manager serves. It is not
	// upstream's: OCM names the Secret of a certificate after its signer, and upstream's
	// agents must not find a certificate of ours (package agentaddon).
	AgentSigner = "proxy.open-cluster-management.io/agent-signer"
	// AgentCertificateSecret is the name that OCM gives the Secret with an agent's
	// certificate, on the managed cluster.
	AgentCertificateSecret = AddonName + "-proxy.open-cluster-management.io-agent-signer-client-cert"
	// ProxyAPIService is the Service of the proxy API: its certificate and its
	// published address hold the same name.
	ProxyAPIService = "cluster-proxy-addon-user"
	// ProxyAPIAudience is the audience of tokens that are for the proxy API alone: the hub's
	// kube-apiserver refuses them.
	ProxyAPIAudience = "clusterproxy.open-cluster-management.io"
	// DefaultAgentNamespace is where the agent is installed unless an
	// AddOnDeploymentConfig says otherwise.
	DefaultAgentNamespace = "open-cluster-management-cluster-proxy"
	// TLSProfile is OCM's ConfigMap with the cluster's TLS profile, in the
	// namespaces of the addon on the hub and of the agent.
	TLSProfile = "ocm-tls-profile"
	// HandlerPort is the port of the agent's own handler, as seen in a dial
	// through the tunnel (the service proxy's port in upstream).
	HandlerPort = "7443"
	// ProxyAPIPeerHost is the name in the certificates with which replicas of the proxy
	// API know each other. It is in no DNS.
	ProxyAPIPeerHost = "cluster-proxy-api-peer" + handlerHostSuffix
	// ProxyAPIPeerPort is the proxy API's default port for its other replicas.
	ProxyAPIPeerPort = 9093
	// FleetIndexHost is the name in the certificate by which the proxy API knows the fleet index. It
	// is in no DNS.
	FleetIndexHost = "cluster-proxy-fleet-index" + handlerHostSuffix
	// FleetIndexPort is the fleet index's default port for the proxy API.
	FleetIndexPort = 9094
	// ProxyServerPort is the proxy servers' default port for clients.
	ProxyServerPort = 8090
	// AgentServerPort is the proxy servers' default port for agents.
	AgentServerPort = 8091
	// PassNamespace is the namespace of the hub in which passes have their service
	// accounts. There is nothing else in it: who may make passes may make tokens there.
	PassNamespace = "cluster-proxy-passes"
	// HubUserPrefix is put before the user name of a hub service account when
	// it is asserted on a managed cluster.
	HubUserPrefix = "cluster:hub:"
)

// Organization is the O of every certificate that the addon issues on the hub.
const Organization = "open-cluster-management:cluster-proxy"

// Role is what the holder of a hub CA certificate may do. It is the
// certificate's common name.
type Role string

const (
	// RoleClient may dial any cluster through ProxyServerPort.
	RoleClient Role = "open-cluster-management:cluster-proxy:client"
	// RoleProxyAPI may do what RoleClient may, and an agent believes the users
	// that it asserts. Replicas of the proxy API believe each other's positions of watches.
	RoleProxyAPI Role = "open-cluster-management:cluster-proxy:proxy-api"
	// RoleFleetIndex may do what RoleClient may, and an agent sends it the rows of objects. It believes
	// the users that it asserts in questions about their rights only. The proxy API believes its answers.
	RoleFleetIndex Role = "open-cluster-management:cluster-proxy:fleet-index"
	// RolePeer is a proxy server that forwards a dial to another one.
	RolePeer Role = "open-cluster-management:cluster-proxy:proxy-server"
)

// OnManagedCluster is the name that a user or a group of the hub has on managed
// clusters: service accounts get a prefix, because without it they would be taken
// for the cluster's own.
func OnManagedCluster(name string) string {
	if strings.HasPrefix(name, "system:serviceaccount") {
		return HubUserPrefix + name
	}
	return name
}

// IsReserved reports whether a name means something to a cluster's own control plane. Kubernetes reserves system:, and kubeadm
// binds names of its own on every cluster that it makes, kubeadm:cluster-admins to cluster-admin.
func IsReserved(name string) bool {
	return strings.HasPrefix(name, "system:") || strings.HasPrefix(name, "kubeadm:")
}

// PassAccount is the name of a pass's service account in PassNamespace. The beginning of the
// Pass's UID is part of it, so that what was bound to an earlier pass of the same name, and may
// be on a managed cluster still, means nothing to this one. The chart's policy
// cluster-proxy-pass-accounts composes it in the same way.
func PassAccount(pass, uid string) string { return pass + "-" + uid[:min(8, len(uid))] }

// PassObject names what binds a role to the account of a pass, on the hub and on managed
// clusters, and its ClusterRole on the hub.
func PassObject(account string) string { return Organization + ":pass:" + account }

// PassUser is the name of a pass on managed clusters.
func PassUser(account string) string {
	return OnManagedCluster("system:serviceaccount:" + PassNamespace + ":" + account)
}

const (
	agentCommonNamePrefix = "system:open-cluster-management:cluster:"
	agentCommonNameMiddle = ":addon:" + AddonName + ":agent:"
	handlerHostSuffix     = ".open-cluster-management.proxy"
)

// AgentCommonName is the CN of the agent certificate of a cluster, in OCM's
// convention for addon agents.
func AgentCommonName(cluster string) string {
	return agentCommonNamePrefix + cluster + agentCommonNameMiddle + agentUser
}

// AgentOrganizations are the O values of the agent certificate of a cluster,
// in OCM's convention, sorted.
func AgentOrganizations(cluster string) []string {
	return []string{
		"system:open-cluster-management:addon:" + AddonName,
		AgentGroup(cluster),
	}
}

// AgentGroup is the one of them that agents of other clusters do not have.
func AgentGroup(cluster string) string {
	return "system:open-cluster-management:cluster:" + cluster + ":addon:" + AddonName
}

// ClusterFromAgentCommonName is the inverse of AgentCommonName. It accepts
// nothing but what AgentCommonName produces for a valid cluster name.
func ClusterFromAgentCommonName(commonName string) (string, error) {
	rest, ok := strings.CutPrefix(commonName, agentCommonNamePrefix)
	if !ok {
		return "", fmt.Errorf("common name %q is not an agent's", commonName)
	}
	cluster, ok := strings.CutSuffix(rest, agentCommonNameMiddle+agentUser)
	if !ok {
		return "", fmt.Errorf("common name %q is not an agent's", commonName)
	}
	if err := ValidateCluster(cluster); err != nil {
		return "", err
	}
	return cluster, nil
}

// clusterUnitPrefix begins the organizational unit with a ManagedCluster's UID.
const clusterUnitPrefix = "cluster-uid:"

// ClusterUnit is the organizational unit in an agent's certificate that tells its
// cluster from an earlier one with the same name.
func ClusterUnit(uid string) string { return clusterUnitPrefix + uid }

// ClusterUIDFromUnits is the inverse of ClusterUnit, for all organizational units
// of a certificate. The UID is empty if none of them holds one. More than one is
// an error.
func ClusterUIDFromUnits(units []string) (uid string, err error) {
	for _, unit := range units {
		value, ok := strings.CutPrefix(unit, clusterUnitPrefix)
		switch {
		case !ok:
		case value == "" || uid != "":
			return "", fmt.Errorf("organizational units %q do not name one cluster UID", units)
		default:
			uid = value
		}
	}
	return uid, nil
}

// ValidateCluster reports whether name can be the name of a ManagedCluster: a
// DNS subdomain (RFC 1123) of at most 253 bytes. Names that start with a digit
// and names with dots are allowed.
func ValidateCluster(name string) error {
	if name == "" {
		return errors.New("cluster name is empty")
	}
	if len(name) > 253 {
		return fmt.Errorf("cluster name of %d bytes is longer than 253", len(name))
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Errorf("cluster name %q is not a DNS subdomain", name)
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return fmt.Errorf("cluster name %q is not a DNS subdomain", name)
			}
		}
	}
	return nil
}

// HandlerHost is the host name that stands for the agent's own handler on a
// cluster, in dials through the tunnel and in the agent's certificate. It is
// upstream's service proxy host: a hash, because a cluster name may be longer
// than a DNS label.
func HandlerHost(cluster string) string {
	return fmt.Sprintf("cluster-%x", sha256.Sum256([]byte(cluster)))[:56] + handlerHostSuffix
}

// Hosts are the host names that route a dial to a cluster: its handler's, its
// name (its kube-apiserver), and its name with the agent namespace, as upstream
// had it.
func Hosts(cluster, agentNamespace string) []string {
	hosts := []string{HandlerHost(cluster), cluster}
	if agentNamespace != "" {
		hosts = append(hosts, cluster+"."+agentNamespace)
	}
	return hosts
}

// Identifiers encodes hosts as konnectivity's agent identifiers.
func Identifiers(hosts []string) string {
	parts := make([]string, len(hosts))
	for i, host := range hosts {
		parts[i] = "host=" + url.QueryEscape(host)
	}
	return strings.Join(parts, "&")
}

// CheckIdentifiers reports whether the identifiers that an agent declares are
// all its own: only hosts, and each of them one of Hosts(cluster,
// agentNamespace). Fewer than those are fine, none at all is not.
func CheckIdentifiers(declared, cluster, agentNamespace string) error {
	values, err := url.ParseQuery(declared)
	if err != nil {
		return fmt.Errorf("parsing agent identifiers %q: %w", declared, err)
	}
	if len(values["host"]) == 0 {
		return fmt.Errorf("agent identifiers %q name no host", declared)
	}
	allowed := Hosts(cluster, agentNamespace)
	for kind, names := range values {
		if kind != "host" {
			return fmt.Errorf("agent identifier of kind %q is not allowed, only host is", kind)
		}
		for _, name := range names {
			if !slices.Contains(allowed, name) {
				return fmt.Errorf("host %q is not one of cluster %q", name, cluster)
			}
		}
	}
	return nil
}
