package addonmanager

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/agentaddon"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/proxyconfig"
	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// Options are the flags of the addon manager. Use NewOptions.
type Options struct {
	// Namespace is the manager's own, from $POD_NAMESPACE.
	Namespace string
	// Kubeconfig of the hub; without it $KUBECONFIG, then the pod's account.
	Kubeconfig string

	MetricsBindAddress     string
	HealthProbeBindAddress string
	LeaderElect            bool

	// SignerSecretNamespace and SignerSecretName are those of the hub CA.
	SignerSecretNamespace string
	SignerSecretName      string
	// AgentInstallNamespace is where agents run by default.
	AgentInstallNamespace string
	// ImagePullPolicy of the proxy servers.
	ImagePullPolicy string
	// ProxyServerPods are settings of the proxy servers' pods as JSON; see
	// proxyconfig.Pods.
	ProxyServerPods string
	// ExposedServicesConfigMap, in Namespace, lists the Services that agents
	// forward requests to.
	ExposedServicesConfigMap string
	// EnableKubeAPIProxy lets clients of the tunnel dial a cluster's
	// kube-apiserver by the cluster's name.
	EnableKubeAPIProxy bool
	// ProxyServer is the host:port of the proxy servers' client port, through
	// which the manager asks agents whether they have moved to a new CA.
	ProxyServer string
	// SecretPropagation is how long a pod may take to read a Secret that has
	// changed.
	SecretPropagation time.Duration
	// AgentNetworkPolicy makes a NetworkPolicy for agents, unless an
	// AddOnDeploymentConfig says otherwise.
	AgentNetworkPolicy bool
	// FleetIndexResources are what the fleet index has rows of, as RESOURCE.GROUP. Without any there is no index.
	FleetIndexResources []string
	// Access is a role that users and groups of the hub have on each cluster, as JSON; see agentaddon.ParseAccess.
	Access string
	// FeatureGates are upstream's; see features.
	FeatureGates map[string]bool
	// CheckArgs returns why a process would not start with arguments, of which the first is its
	// name. Nil checks nothing.
	CheckArgs func(args []string) error
	// ProxyAPIURL is where clients outside the hub find the proxy API, for
	// ClusterProfiles; empty means its Service.
	ProxyAPIURL string
}

// ClusterProfile is the feature gate that publishes access providers.
const ClusterProfile = "ClusterProfile"

// features are the gates that there are, as in upstream.
var features = []string{ClusterProfile}

// NewOptions are the defaults.
func NewOptions() *Options {
	namespace := os.Getenv("POD_NAMESPACE")
	return &Options{
		Namespace:              namespace,
		MetricsBindAddress:     ":58080",
		HealthProbeBindAddress: ":58081",
		SignerSecretNamespace:  namespace,
		SignerSecretName:       "cluster-proxy-signer",
		AgentInstallNamespace:  identity.DefaultAgentNamespace,
		ImagePullPolicy:        "IfNotPresent",
		EnableKubeAPIProxy:     true,

		ExposedServicesConfigMap: agentapi.ExposedServicesConfigMap,
		ProxyServer:              fmt.Sprintf("proxy-entrypoint.%s.svc:%d", namespace, identity.ProxyServerPort),
		SecretPropagation:        5 * time.Minute,
	}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig of the hub; empty means $KUBECONFIG, then the pod's service account")
	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, "address for metrics; 0 means none")
	fs.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress, "address for probes")
	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "work only while being the leader of all replicas")
	fs.StringVar(&o.SignerSecretNamespace, "signer-secret-namespace", o.SignerSecretNamespace, "namespace of the CAs' Secrets; the manager's own")
	fs.StringVar(&o.SignerSecretName, "signer-secret-name", o.SignerSecretName, "name of the hub CA's Secret")
	fs.StringVar(&o.AgentInstallNamespace, "agent-install-namespace", o.AgentInstallNamespace, "namespace of agents on managed clusters, unless an AddOnDeploymentConfig says otherwise")
	fs.StringVar(&o.ImagePullPolicy, "image-pull-policy", o.ImagePullPolicy, "image pull policy of the proxy servers: Always, IfNotPresent or Never")
	fs.StringVar(&o.ProxyServerPods, "proxy-server-pods", o.ProxyServerPods, "settings of the proxy servers' pods as JSON: priorityClassName, affinity, topologySpreadConstraints, resources, labels, annotations, env")
	fs.StringVar(&o.ExposedServicesConfigMap, "exposed-services-configmap", o.ExposedServicesConfigMap, "ConfigMap in the manager's namespace with the Services of managed clusters that may be reached")
	fs.BoolVar(&o.EnableKubeAPIProxy, "enable-kube-api-proxy", o.EnableKubeAPIProxy, "let clients of the tunnel dial a cluster's kube-apiserver by the cluster's name")
	fs.StringVar(&o.ProxyServer, "proxy-server", o.ProxyServer, "host:port of the proxy servers' client port, through which agents are asked whether they have moved to a new CA")
	fs.DurationVar(&o.SecretPropagation, "secret-propagation", o.SecretPropagation, "how long pods may take to read a Secret that has changed; each phase of a CA's rotation lasts at least that long")
	fs.BoolVar(&o.AgentNetworkPolicy, "agent-network-policy", o.AgentNetworkPolicy, "make a NetworkPolicy for agents on managed clusters, unless an AddOnDeploymentConfig says otherwise")
	fs.StringSliceVar(&o.FleetIndexResources, "fleet-index-resources", o.FleetIndexResources, "resources of which there is a fleet index, as RESOURCE.GROUP, or RESOURCE of the core group: agents get the right to read them and send their rows, and the index gets a certificate; empty means that there is no index; never secrets")
	fs.StringVar(&o.Access, "access", o.Access, "users and groups of the hub that have a ClusterRole on each cluster, bound with the agent, as JSON: users, groups, clusterRole; empty means nobody")
	fs.Var(cliflag.NewMapStringBool(&o.FeatureGates), "feature-gates", "features to switch on or off, name=true or name=false; there are: "+strings.Join(features, ", "))
	fs.StringVar(&o.ProxyAPIURL, "proxy-api-url", o.ProxyAPIURL, "https URL of the proxy API for clients outside the hub, for ClusterProfiles; empty means its Service")
}

// peers is where the proxy servers of this release are, and no others (package
// proxyconfig), with the name in their certificates.
func (o *Options) peers() (address, serverName string) {
	host, port, err := net.SplitHostPort(o.ProxyServer)
	if err != nil {
		return o.ProxyServer, "" // Validate looked at it
	}
	service, rest, _ := strings.Cut(host, ".")
	return net.JoinHostPort(strings.TrimSuffix(service+proxyconfig.PeersSuffix+"."+rest, "."), port), host
}

// Validate reports all flags that are wrong, and what is allowed. It does no I/O.
func (o *Options) Validate() error {
	var errs flags.Errors
	if o.Namespace == "" {
		errs.Add(errors.New("$POD_NAMESPACE is empty: it must be the addon manager's namespace"))
	}
	if o.SignerSecretNamespace != o.Namespace {
		errs.Refuse("signer-secret-namespace", o.SignerSecretNamespace, "it must be the addon manager's own namespace, %q, where its rights end", o.Namespace)
	}
	for _, name := range []struct{ flag, value string }{
		{"signer-secret-name", o.SignerSecretName}, {"agent-install-namespace", o.AgentInstallNamespace}, {"exposed-services-configmap", o.ExposedServicesConfigMap},
	} {
		if problems := validation.IsDNS1123Subdomain(name.value); len(problems) > 0 {
			errs.Refuse(name.flag, name.value, "%s", strings.Join(problems, "; "))
		}
	}
	if !slices.Contains([]string{"Always", "IfNotPresent", "Never"}, o.ImagePullPolicy) {
		errs.Refuse("image-pull-policy", o.ImagePullPolicy, "it must be Always, IfNotPresent or Never")
	}
	_, err := proxyconfig.ParsePods(o.ProxyServerPods)
	errs.Invalid("proxy-server-pods", o.ProxyServerPods, err)
	errs.HostPort("proxy-server", o.ProxyServer)
	if o.SecretPropagation < time.Second {
		errs.Refuse("secret-propagation", o.SecretPropagation, "it must be at least 1s, and no shorter than kubelets take")
	}
	for _, name := range o.FleetIndexResources {
		_, err := feed.ParseResource(name)
		errs.Invalid("fleet-index-resources", name, err)
	}
	_, err = agentaddon.ParseAccess(o.Access)
	errs.Invalid("access", o.Access, err)
	for _, name := range slices.Sorted(maps.Keys(o.FeatureGates)) {
		if !slices.Contains(features, name) {
			errs.Refuse("feature-gates", name, "it must be one of %s", strings.Join(features, ", "))
		}
	}
	if u, err := url.Parse(o.ProxyAPIURL); o.ProxyAPIURL != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "") {
		errs.Refuse("proxy-api-url", o.ProxyAPIURL, "it must be of the form https://host:port")
	}
	return errs.Err()
}
