package agentaddon

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"open-cluster-management.io/addon-framework/pkg/addonfactory"
	"open-cluster-management.io/addon-framework/pkg/utils"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/proxyconfig"
	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// overlapSeconds is how long upstream's agent goes on beside the one that takes over
// from it, while upstream's proxy servers serve its clients. They do for no longer than
// 80 seconds after the first agent of this release can be ready (package proxyconfig).
const overlapSeconds = 90

// exitTime is for how long an agent may take to exit once it has drained.
const exitTime = 10 * time.Second

// containerID is the agent's container in AddOnDeploymentConfig's resource
// requirements.
const containerID = "deployments:cluster-proxy-proxy-agent:proxy-agent"

// On the cluster that is the hub itself, as in OCM's other addons.
const (
	localClusterLabel      = "local-cluster"
	nodeSelectorAnnotation = "open-cluster-management/nodeSelector"
)

// pullSecret is what the klusterlet copies into each namespace that has OCM's label, as the
// agents' has. Kubernetes ignores the name of a Secret that is not there.
const pullSecret = "open-cluster-management-image-pull-credentials"

// imageRegistriesAnnotation overrides images on a ManagedCluster, as in OCM.
const imageRegistriesAnnotation = "open-cluster-management.io/image-registries"

// getValues is addon-framework's way to ask for those of an addon that it renders.
func (a *Addon) getValues(cluster *clusterv1.ManagedCluster, addon *addonv1alpha1.ManagedClusterAddOn) (addonfactory.Values, error) {
	rendered, ok := a.rendering.Load(addon)
	if !ok {
		return nil, fmt.Errorf("rendering the agent of cluster %q: its values were not read", cluster.Name)
	}
	return addonfactory.JsonStructToValues(rendered.(*values))
}

func (a *Addon) makeValues(ctx context.Context, cluster *clusterv1.ManagedCluster, addon *addonv1alpha1.ManagedClusterAddOn) (*values, error) {
	configuration, err := a.configuration(ctx, addon)
	if err != nil {
		return nil, err
	}
	deployment, err := utils.GetDesiredAddOnDeploymentConfig(addon, a.DeploymentConfigs)
	if err != nil {
		return nil, fmt.Errorf("reading the AddOnDeploymentConfig: %w", err)
	}
	namespace, err := a.namespaceOf(ctx, addon, deployment)
	if err != nil {
		return nil, err
	}
	v, err := a.baseValues(ctx, configuration, cluster, namespace)
	if err != nil {
		return nil, err
	}
	if err := overrideImage(v, cluster); err != nil {
		return nil, err
	}
	if err := placeOnHub(v, cluster); err != nil {
		return nil, err
	}
	if err := a.recognizeHub(ctx, v, cluster, namespace); err != nil {
		return nil, err
	}
	a.Access.bind(v)
	if deployment != nil {
		if err := applyDeploymentConfig(v, deployment.Spec); err != nil {
			return nil, fmt.Errorf("AddOnDeploymentConfig %q in namespace %q: %w", deployment.Name, deployment.Namespace, err)
		}
	}
	if v.NodeSelector["kubernetes.io/os"] == "" {
		selector := map[string]string{"kubernetes.io/os": "linux"} // there is no image for another
		maps.Copy(selector, v.NodeSelector)
		v.NodeSelector = selector
	}
	if err := checkOIDC(v.Args); err != nil {
		return nil, err
	}
	if a.CheckArgs != nil {
		if err := a.CheckArgs(v.Args); err != nil {
			return nil, fmt.Errorf("the proxy-agent of cluster %q does not start with what the ManagedProxyConfiguration and the AddOnDeploymentConfig say: %w", cluster.Name, err)
		}
	}
	drain := proxyconfig.Drain(v.Args, "min-drain-duration") + proxyconfig.Drain(v.Args, "graceful-shutdown-timeout")
	v.GraceSeconds = int64((drain + exitTime) / time.Second)
	return v, nil
}

func (a *Addon) baseValues(ctx context.Context, c *v1alpha1.ManagedProxyConfiguration, cluster *clusterv1.ManagedCluster, namespace string) (*values, error) {
	host, port, err := proxyconfig.AgentEntrypoint(ctx, a.Reader, c)
	if err != nil {
		return nil, fmt.Errorf("finding out what agents dial: %w", err)
	}
	bundle, err := a.Certificates.HubBundle(ctx)
	if err != nil {
		return nil, err
	}
	v := &values{
		namespace:        namespace,
		ExtraKeys:        slices.Clone(agentapi.ExtraKeys),
		HubBundle:        string(bundle),
		Image:            c.Spec.ProxyAgent.Image,
		ImagePullPolicy:  "IfNotPresent",
		ImagePullSecrets: append(slices.DeleteFunc(slices.Clone(c.Spec.ProxyAgent.ImagePullSecrets), func(name string) bool { return name == pullSecret }), pullSecret),
		PortForward:      c.Spec.ProxyServer.Entrypoint.Type == v1alpha1.EntryPointTypePortForward,
		Replicas:         c.Spec.ProxyAgent.Replicas,
		Resources:        defaultResources(),
		// Agents may run where infrastructure runs, as upstream's do.
		Tolerations: []corev1.Toleration{
			{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "infra", Effect: corev1.TaintEffectNoSchedule},
			{Key: "node-role.kubernetes.io/infra", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
		},
		Args: a.baseArgs(cluster.Name, namespace, host, port),
	}
	moving, err := proxyconfig.Moving(ctx, a.Reader, c)
	if err != nil {
		return nil, err
	}
	if moving {
		v.MinReadySeconds = overlapSeconds
		v.Former = &former{ServiceDomain: "svc.cluster.local"}
		if a.EnableKubeAPIProxy {
			v.Former.KubeAPIHost = cluster.Name
		}
	}
	v.NetworkPolicy.Enabled = a.NetworkPolicy
	if !v.PortForward { // which needs the hub's kube-apiserver, and that no more than its port
		v.NetworkPolicy.Peers = []networkPeer{peer(host, int(port))}
	}
	if v.PortForward {
		v.Args = append(v.Args, "--enable-port-forward-proxy=true", "--hub-kubeconfig=/etc/hub/kubeconfig", "--proxy-server-namespace="+c.Spec.ProxyServer.Namespace)
	}
	if err := a.sendRows(v); err != nil {
		return nil, err
	}
	if err := a.exposeServices(ctx, v, cluster, c.Spec.ProxyAgent.AdditionalServiceCAConfigMap); err != nil {
		return nil, err
	}
	v.Args = slices.Concat(v.Args, c.Spec.ProxyAgent.AdditionalServiceProxyArgs, c.Spec.ProxyAgent.AdditionalArgs)
	return v, nil
}

// baseArgs are the agent's arguments on every cluster.
func (a *Addon) baseArgs(cluster, namespace, host string, port int32) []string {
	return []string{
		"proxy-agent",
		"--cluster-name=" + cluster,
		"--proxy-server-host=" + host,
		"--proxy-server-port=" + strconv.Itoa(int(port)),
		"--agent-identifiers=" + identity.Identifiers(a.hosts(cluster, namespace)),
		"--agent-install-namespace=" + namespace,
		"--ca-cert=/etc/ca/ca.crt",
		"--agent-cert=/etc/tls/tls.crt",
		"--agent-key=/etc/tls/tls.key",
		"--handler-port=" + identity.HandlerPort,
		"--exposed-services=/etc/exposed-services",
		"--tls-profile=/etc/tls-profile",
		"--health-server-port=8093",
		"--admin-server-port=8094",
		"--addon-lease-namespace=" + namespace,
		"--owner-policy=/etc/owner-policy",
		"--min-drain-duration=5s",
		"--graceful-shutdown-timeout=25s",
	}
}

// sendRows has the agent send rows to the fleet index, and read no more than it sends.
func (a *Addon) sendRows(v *values) error {
	groups := map[string][]string{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(a.FleetIndex))) {
		resource, err := feed.ParseResource(name)
		if err != nil {
			return fmt.Errorf("reading which resources are indexed: %q: %w", name, err)
		}
		groups[resource.Group] = append(groups[resource.Group], resource.Resource)
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		v.Index = append(v.Index, indexed{group, groups[group]})
	}
	if len(v.Index) > 0 {
		v.Args = append(v.Args, "--enable-fleet-index=true")
	}
	return nil
}

// hosts are the names in the tunnel that lead to a cluster. The name with the agent's
// namespace is left out if that is not the default, the only one that the proxy server
// knows.
func (a *Addon) hosts(cluster, namespace string) []string {
	if !a.EnableKubeAPIProxy {
		return []string{identity.HandlerHost(cluster)}
	}
	if namespace != a.InstallNamespace {
		namespace = ""
	}
	return identity.Hosts(cluster, namespace)
}

func applyDeploymentConfig(v *values, spec addonv1alpha1.AddOnDeploymentConfigSpec) error {
	if placement := spec.NodePlacement; placement != nil {
		if placement.NodeSelector != nil {
			v.NodeSelector = placement.NodeSelector
		}
		if placement.Tolerations != nil {
			v.Tolerations = placement.Tolerations
		}
	}
	// In one order: the same configuration must render the same NetworkPolicy, or the
	// ManifestWork would change at each reconciliation.
	for _, variable := range []struct{ name, value string }{
		{"HTTP_PROXY", spec.ProxyConfig.HTTPProxy}, {"HTTPS_PROXY", spec.ProxyConfig.HTTPSProxy}, {"NO_PROXY", spec.ProxyConfig.NoProxy},
	} {
		name, value := variable.name, variable.value
		if value == "" {
			continue
		}
		if u, err := url.Parse(value); name != "NO_PROXY" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return fmt.Errorf("spec.proxyConfig for %s is not a URL of the form http://host:port or https://host:port", name)
		}
		if u, err := url.Parse(value); err == nil && name != "NO_PROXY" {
			v.NetworkPolicy.Peers = append(v.NetworkPolicy.Peers, peer(u.Hostname(), portOf(u)))
		}
		if v.Env == nil {
			v.Env = map[string]string{}
		}
		v.Env[name] = value
	}
	if bundle := spec.ProxyConfig.CABundle; len(bundle) > 0 {
		if _, err := pki.NotAfter(bundle); err != nil {
			return fmt.Errorf("spec.proxyConfig.caBundle has no certificate in PEM: %w", err)
		}
		v.ProxyCA = string(bundle)
	}
	if len(spec.Registries) > 0 {
		v.Image = addonfactory.OverrideImage(spec.Registries, v.Image)
	}
	for _, requirement := range spec.ResourceRequirements {
		matched, err := matchContainer(requirement.ContainerID)
		if err != nil {
			return err
		}
		if matched {
			v.Resources = requirement.Resources
		}
	}
	return applyVariables(v, spec.CustomizedVariables)
}

// defaultResources are those of an agent of which no AddOnDeploymentConfig says others. An
// idle agent takes 30 MiB, and up to 70 KiB for each connection and 200 KiB for each watch.
func defaultResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("48Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
	}
}

// CheckDeploymentConfig returns why an AddOnDeploymentConfig is invalid, and which of
// its customized variables this release ignores.
func CheckDeploymentConfig(spec addonv1alpha1.AddOnDeploymentConfigSpec) (ignored []string, err error) {
	v := &values{}
	if err := applyDeploymentConfig(v, spec); err != nil {
		return nil, err
	}
	return v.ignored, checkOIDC(v.Args)
}

// matchContainer reports whether an ID such as "deployments:*:proxy-agent" is
// the agent's container.
func matchContainer(id string) (bool, error) {
	expression, err := regexp.Compile("^" + regexp.MustCompile(`\\\*`).ReplaceAllString(regexp.QuoteMeta(id), ".*") + "$")
	if err != nil {
		return false, fmt.Errorf("spec.resourceRequirements has containerID %q: %w", id, err)
	}
	return expression.MatchString(containerID), nil
}

// overrideImage honours the registries that a ManagedCluster names.
func overrideImage(v *values, cluster *clusterv1.ManagedCluster) error {
	annotation := cluster.Annotations[imageRegistriesAnnotation]
	if annotation == "" {
		return nil
	}
	var registries struct {
		Registries []addonv1alpha1.ImageMirror `json:"registries"`
	}
	if err := json.Unmarshal([]byte(annotation), &registries); err != nil {
		return fmt.Errorf("parsing annotation %s of ManagedCluster %q: %w", imageRegistriesAnnotation, cluster.Name, err)
	}
	v.Image = addonfactory.OverrideImage(registries.Registries, v.Image)
	return nil
}

// placeOnHub honours the node selector that the hub's own ManagedCluster names.
func placeOnHub(v *values, cluster *clusterv1.ManagedCluster) error {
	annotation := cluster.Annotations[nodeSelectorAnnotation]
	if annotation == "" || cluster.Labels[localClusterLabel] != "true" {
		return nil
	}
	if err := json.Unmarshal([]byte(annotation), &v.NodeSelector); err != nil {
		return fmt.Errorf("parsing annotation %s of ManagedCluster %q: it must be a JSON object of strings: %w", nodeSelectorAnnotation, cluster.Name, err)
	}
	return nil
}

// hubTimeout bounds that question to the hub.
const hubTimeout = 10 * time.Second

// impersonatorPrefix and the agent's namespace make the name of that ClusterRole.
const impersonatorPrefix = "open-cluster-management:cluster-proxy:impersonator:"

// recognizeHub finds out whether a cluster is the hub itself: an object that was
// rendered for that cluster alone then exists on the hub. Anyone else who could put it
// there may write ClusterRoles of the hub, and has no need to. Labels and claims of a
// ManagedCluster are no proof: a cluster, and others, may write them. The UID tells the
// ManagedCluster from one of the same name on another hub, of which this hub may be a
// managed cluster.
//
// The agent therefore first starts as on any cluster. When OCM reports in the
// ManifestWork that its manifests are applied, they are rendered again. Nothing else
// makes them anew, so no earlier answer is believed: the hub is asked each time.
func (a *Addon) recognizeHub(ctx context.Context, v *values, cluster *clusterv1.ManagedCluster, namespace string) error {
	v.ManagedClusterUID = string(cluster.UID)
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	var role rbacv1.ClusterRole
	// A refusal is not "there is none": a kube-apiserver that has just started refuses everybody.
	if err := a.Hub.Get(ctx, client.ObjectKey{Name: impersonatorPrefix + namespace}, &role); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("finding out whether cluster %q is the hub: %w", cluster.Name, err)
	}
	if cluster.UID == "" || role.Annotations[clusterAnnotation] != string(cluster.UID) {
		return nil
	}
	v.OnHub = true
	v.Args = append(v.Args, "--on-hub=true")
	return nil
}
