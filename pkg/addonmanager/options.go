package addonmanager

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

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
	// EnableKubeAPIProxy lets clients of the tunnel dial a cluster's
	// kube-apiserver by the cluster's name.
	EnableKubeAPIProxy bool
}

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
	flags.BoolVar(&o.EnableKubeAPIProxy, "enable-kube-api-proxy", o.EnableKubeAPIProxy, "let clients of the tunnel dial a cluster's kube-apiserver by the cluster's name")
}

// Validate names the flag that is wrong and says what is allowed.
func (o *Options) Validate() error {
	if o.Namespace == "" {
		return errors.New("$POD_NAMESPACE is empty: it must be the addon manager's namespace")
	}
	if o.SignerSecretNamespace != o.Namespace {
		return fmt.Errorf("--signer-secret-namespace is %q: it must be the addon manager's own namespace, %q, where its rights end", o.SignerSecretNamespace, o.Namespace)
	}
	for flag, name := range map[string]string{"--signer-secret-name": o.SignerSecretName, "--agent-install-namespace": o.AgentInstallNamespace} {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return fmt.Errorf("%s is %q: %s", flag, name, strings.Join(problems, "; "))
		}
	}
	if !slices.Contains([]string{"Always", "IfNotPresent", "Never"}, o.ImagePullPolicy) {
		return fmt.Errorf("--image-pull-policy is %q: it must be Always, IfNotPresent or Never", o.ImagePullPolicy)
	}
	return nil
}
