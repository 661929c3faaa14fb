package agentaddon

import (
	"context"
	"sync"

	"open-cluster-management.io/addon-framework/pkg/utils"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
)

// Addon makes the agent addon of what it reads.
type Addon struct {
	// Reader reads configurations, Services and addons of the hub.
	Reader client.Reader
	// Certificates are those of package certificates.
	Certificates certificates.Store
	// DeploymentConfigs reads AddOnDeploymentConfigs.
	DeploymentConfigs utils.AddOnDeploymentConfigGetter
	// InstallNamespace is where agents run unless an AddOnDeploymentConfig says
	// otherwise.
	InstallNamespace string
	// EnableKubeAPIProxy makes the cluster's name a destination in the tunnel.
	EnableKubeAPIProxy bool
	// NetworkPolicy says whether agents get a NetworkPolicy, unless an
	// AddOnDeploymentConfig says otherwise.
	NetworkPolicy bool
	// FleetIndex are the resources, as RESOURCE.GROUP, that agents read and send the rows of. Without any they send
	// none, and may not read any.
	FleetIndex []string
	// Access is a role that users and groups of the hub have on each cluster. Without any there is no binding.
	Access Access
	// ExposedServices is the hub's ConfigMap with the Services that agents
	// forward requests to. Without a name there are none.
	ExposedServices client.ObjectKey
	// Ignored is called with the customized variables of an addon that this release
	// ignores, each time its manifests are made. It may be nil.
	Ignored func(ctx context.Context, addon *addonv1alpha1.ManagedClusterAddOn, variables []string)

	// CheckArgs returns why an agent would not start with its arguments. Nil checks nothing.
	CheckArgs func(args []string) error
	// Hub reads the hub's own ClusterRoles.
	Hub client.Reader
	// Metrics may be nil.
	Metrics *Metrics

	exposed exposed
	// rendering has the values of each addon that is being rendered, by its pointer.
	rendering sync.Map
}

// exposed remembers the last good list of exposed Services.
type exposed struct {
	mu   sync.Mutex
	last *agentapi.ExposedServices
	said string // the error that was logged last
}

// clusterAnnotation is on the agent's ClusterRole: the UID of the ManagedCluster
// whose agent it is.
const clusterAnnotation = "proxy.open-cluster-management.io/managed-cluster-uid"
