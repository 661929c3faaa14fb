package addonmanager

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/proxyconfig"
	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
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
	// FeatureGates are upstream's; see features.
	FeatureGates map[string]bool
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
		ProxyServer:              "proxy-entrypoint." + namespace + ".svc:8090",
		SecretPropagation:        5 * time.Minute,
	}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig of the hub; without it $KUBECONFIG, then the pod's service account")
	flags.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress, "address for metrics; 0 for none")
	flags.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress, "address for probes")
	flags.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "work only while being the leader of all replicas")
	flags.StringVar(&o.SignerSecretNamespace, "signer-secret-namespace", o.SignerSecretNamespace, "namespace of the CAs' Secrets; the manager's own")
	flags.StringVar(&o.SignerSecretName, "signer-secret-name", o.SignerSecretName, "name of the hub CA's Secret")
	flags.StringVar(&o.AgentInstallNamespace, "agent-install-namespace", o.AgentInstallNamespace, "namespace of agents on managed clusters, unless an AddOnDeploymentConfig says otherwise")
	flags.StringVar(&o.ImagePullPolicy, "image-pull-policy", o.ImagePullPolicy, "image pull policy of the proxy servers: Always, IfNotPresent or Never")
	flags.StringVar(&o.ProxyServerPods, "proxy-server-pods", o.ProxyServerPods, "settings of the proxy servers' pods as JSON: priorityClassName, affinity, topologySpreadConstraints, resources, labels, annotations")
	flags.StringVar(&o.ExposedServicesConfigMap, "exposed-services-configmap", o.ExposedServicesConfigMap, "ConfigMap in the manager's namespace with the Services of managed clusters that may be reached")
	flags.BoolVar(&o.EnableKubeAPIProxy, "enable-kube-api-proxy", o.EnableKubeAPIProxy, "let clients of the tunnel dial a cluster's kube-apiserver by the cluster's name")
	flags.StringVar(&o.ProxyServer, "proxy-server", o.ProxyServer, "host:port of the proxy servers' client port, through which agents are asked whether they have moved to a new CA")
	flags.DurationVar(&o.SecretPropagation, "secret-propagation", o.SecretPropagation, "how long pods may take to read a Secret that has changed; each phase of a CA's rotation lasts at least that long")
	flags.BoolVar(&o.AgentNetworkPolicy, "agent-network-policy", o.AgentNetworkPolicy, "make a NetworkPolicy for agents on managed clusters, unless an AddOnDeploymentConfig says otherwise")
	flags.Var(cliflag.NewMapStringBool(&o.FeatureGates), "feature-gates", "features to switch on or off, name=true or name=false; there are: "+strings.Join(features, ", "))
	flags.StringVar(&o.ProxyAPIURL, "proxy-api-url", o.ProxyAPIURL, "https URL of the proxy API for clients outside the hub, for ClusterProfiles; empty means its Service")
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

// Validate names the flag that is wrong and says what is allowed.
func (o *Options) Validate() error {
	if o.Namespace == "" {
		return errors.New("$POD_NAMESPACE is empty: it must be the addon manager's namespace")
	}
	if o.SignerSecretNamespace != o.Namespace {
		return fmt.Errorf("--signer-secret-namespace is %q: it must be the addon manager's own namespace, %q, where its rights end", o.SignerSecretNamespace, o.Namespace)
	}
	for flag, name := range map[string]string{"--signer-secret-name": o.SignerSecretName, "--agent-install-namespace": o.AgentInstallNamespace, "--exposed-services-configmap": o.ExposedServicesConfigMap} {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return fmt.Errorf("%s is %q: %s", flag, name, strings.Join(problems, "; "))
		}
	}
	if !slices.Contains([]string{"Always", "IfNotPresent", "Never"}, o.ImagePullPolicy) {
		return fmt.Errorf("--image-pull-policy is %q: it must be Always, IfNotPresent or Never", o.ImagePullPolicy)
	}
	if _, err := proxyconfig.ParsePods(o.ProxyServerPods); err != nil {
		return fmt.Errorf("--proxy-server-pods: %w", err)
	}
	if _, _, err := net.SplitHostPort(o.ProxyServer); err != nil {
		return fmt.Errorf("--proxy-server is %q: it must be of the form host:port", o.ProxyServer)
	}
	if o.SecretPropagation < time.Second {
		return fmt.Errorf("--secret-propagation is %s: it must be 1s at least, and no shorter than kubelets take", o.SecretPropagation)
	}
	for name := range o.FeatureGates {
		if !slices.Contains(features, name) {
			return fmt.Errorf("--feature-gates names %q: there are %s", name, strings.Join(features, ", "))
		}
	}
	if u, err := url.Parse(o.ProxyAPIURL); o.ProxyAPIURL != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "") {
		return fmt.Errorf("--proxy-api-url is %q: it must be of the form https://host:port", o.ProxyAPIURL)
	}
	return nil
}
