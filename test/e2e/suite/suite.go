package suite

import (
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	addonclient "open-cluster-management.io/api/client/addon/clientset/versioned"
	workclient "open-cluster-management.io/api/client/work/clientset/versioned"

	"open-cluster-management.io/cluster-proxy/test/lab"
)

// Options say what the suite runs against.
type Options struct {
	// Dir is for files of this run, and Root is the repository.
	Dir, Root string
	// Nodes starts a lab with real nodes.
	Nodes bool
	// WithoutRace builds what the pods run without the race detector, to measure it.
	WithoutRace bool
	// Values are values of the hub's chart beside ChartValues, each "key=value".
	Values []string
	// More are managed clusters beside the two that every lab of the suite has.
	More []string
	// Older are the managed clusters whose kube-apiserver is a minor release of Kubernetes older.
	Older []string
	// Delay is how long a round trip between agents and the hub takes; nothing is
	// added if it is 0.
	Delay time.Duration
	// Clusters were made by others; none is a lab of the suite's own.
	Clusters *Clusters
}

// Clusters are a hub and managed clusters that others made, with the addon on
// them.
type Clusters struct {
	// Hub and Managed are files: administrators' kubeconfigs, the managed ones' by
	// cluster.
	Hub     string
	Managed map[string]string
	// ProxyServer and ProxyAPI are where these are reached, host:port.
	ProxyServer, ProxyAPI string
	// Kubectl is the program; empty is the one in PATH.
	Kubectl string
}

// Suite is what the scenarios know of the system that they run against.
type Suite struct {
	// Lab is nil if others made the clusters; see NeedLab.
	Lab            *lab.Lab
	Clusters       []string
	Namespace      string // of the addon on the hub
	AgentNamespace string // of the agent on each managed cluster
	Dir            string // for files of this run
	// HubKubeconfig is an administrator's, and a file.
	HubKubeconfig string

	Hub             *kubernetes.Clientset
	Addons          *addonclient.Clientset
	Works           *workclient.Clientset
	Configuration   dynamic.ResourceInterface
	Placements      dynamic.NamespaceableResourceInterface
	ManagedClusters dynamic.ResourceInterface

	ProxyServer string // host:port of the client port
	ProxyAPI    string // host:port
	HubCA       []byte
	// HubToken is of a service account of the hub, who may do everything on the
	// managed clusters.
	HubToken string

	AdminToken  map[string]string // by cluster, like the others
	ViewerToken map[string]string
	AuditLog    map[string]string // in a lab

	options Options
	admin   map[string]*rest.Config
	hub     *rest.Config
}

// HubConfig returns an administrator's configuration of the hub.
func (s *Suite) HubConfig() *rest.Config { return rest.CopyConfig(s.hub) }

// AdminConfig returns an administrator's configuration of a managed cluster.
func (s *Suite) AdminConfig(cluster string) *rest.Config { return rest.CopyConfig(s.admin[cluster]) }

// NeedLab skips what looks into the lab that the suite started, or changes it,
// where others made the clusters.
func (s *Suite) NeedLab(t *testing.T, why string) {
	t.Helper()
	if s.Lab == nil {
		t.Skip("needs a lab of this suite: it " + why)
	}
}

// ClusterDomain is the one that every cluster has a host below, at the proxy API.
const ClusterDomain = "clusters.example.org"

// secondCluster is a cluster that joins in OCM's other way, by gRPC, and whose addons get
// tokens of the hub, where OCM has that.
const secondCluster = "2nd-cluster"
