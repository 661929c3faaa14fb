package proxyconfig

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// Options of the reconciler.
type Options struct {
	// SignerNamespace and SignerName are those of the hub CA's Secret.
	SignerNamespace, SignerName string
	// Namespace is the addon's on the hub: that of the proxy API, and the only
	// one in which this reconciler may work.
	Namespace string
	// AgentInstallNamespace is the default namespace of agents.
	AgentInstallNamespace string
	// ImagePullPolicy of the proxy servers.
	ImagePullPolicy string
	// Pods are further settings of the proxy servers' pods.
	Pods Pods
	// Propagation is how long a pod may take to read a Secret that has changed.
	Propagation time.Duration
	// FleetIndex says that there is a fleet index, which needs a certificate.
	FleetIndex bool
	// CheckArgs returns why a process would not start with arguments, of which the first is its
	// name. Nil checks nothing.
	CheckArgs func(args []string) error
}

// Reconciler reconciles ManagedProxyConfigurations.
type Reconciler struct {
	Client  client.Client
	Options Options
	// Checker knows which clusters have moved to a new CA.
	Checker certificates.RotationChecker
	// Live reads pods, which Client's cache does not hold. Nil means that there are
	// none of upstream's proxy servers.
	Live client.Reader
	// Arrivals knows which clusters have come to the proxy servers of this release,
	// while upstream's serve beside them. Nil means that none has.
	Arrivals certificates.RotationChecker
	// Clusters are those with the addon. Nil means none.
	Clusters func(ctx context.Context) ([]Cluster, error)
	// Events records rotations. It may be nil.
	Events events.EventRecorder
	// Metrics may be nil.
	Metrics *Metrics
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Cluster is one with the addon.
type Cluster struct {
	Name string
	// Token is set if the agent's credential of the hub is a service account's
	// token, and not a certificate.
	Token bool
}

func (r *Reconciler) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

func (r *Reconciler) event(c runtime.Object, reason, message string, args ...any) {
	if r.Events != nil {
		r.Events.Eventf(c, nil, corev1.EventTypeNormal, reason, "Rotate", message, args...)
	}
}

const (
	componentLabel       = "proxy.open-cluster-management.io/component-name"
	componentName        = "proxy-server"
	generationAnnotation = "proxy.open-cluster-management.io/configuration-generation"
	addonLabel           = "open-cluster-management.io/addon"
	portForwardRole      = "cluster-proxy-addon-agent:portforward"

	// serviceAccount is the proxy servers'. The chart binds its rights to it, but
	// does not make it: helm rollback to a release that knows no such account would
	// delete it, and the name stays in the Deployment (kube-apiserver fills an empty
	// serviceAccountName from the deprecated serviceAccount), whose pods could not be
	// made then.
	serviceAccount = "cluster-proxy-server"

	// tokenAccount is the account that OCM makes in a cluster's namespace for an
	// agent whose credential of the hub is a token. Its name is OCM's convention;
	// the one in the addon's status is written by the cluster.
	tokenAccount = identity.AddonName + "-agent"

	// PeersSuffix makes the name of the Service in which there are all proxy servers
	// of this release, and none of upstream's.
	PeersSuffix = "-peers"
	// nextSuffix makes the name of the Service by which proxy APIs reach the proxy
	// servers of this release before clients do, in a move from upstream. The chart has
	// it too.
	nextSuffix = "-next"
	// countSuffix makes the name of the ConfigMap with the number of servers, and
	// countKey is the file in it.
	countSuffix = "-proxy-server-count"
	countKey    = "server-count"
)

func ownerOf(c *v1alpha1.ManagedProxyConfiguration) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ManagedProxyConfiguration", Name: c.Name, UID: c.UID}
}

func meta(c *v1alpha1.ManagedProxyConfiguration, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: c.Spec.ProxyServer.Namespace,
		Labels:          map[string]string{addonLabel: identity.AddonName, componentLabel: componentName},
		Annotations:     map[string]string{generationAnnotation: strconv.FormatInt(c.Generation, 10)},
		OwnerReferences: []metav1.OwnerReference{ownerOf(c)},
	}
}

// selector selects all proxy servers, upstream's too.
func selector() map[string]string { return map[string]string{componentLabel: componentName} }

// ownSelector selects those that are not upstream's, which has no such label.
func ownSelector() map[string]string {
	return map[string]string{componentLabel: componentName, addonLabel: identity.AddonName}
}
