package proxyconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

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

// desired is what a configuration wants to exist besides certificates, and what
// it does not want any more. c has its defaults; clusters are those with the
// addon. Services come before the Deployment, by which pods that they must not
// lead to yet are made.
func (o Options) desired(c *v1alpha1.ManagedProxyConfiguration, clusters []Cluster, m move) (apply, remove []client.Object) {
	apply = []client.Object{serverAccount(c), serverCount(c), service(c, m), peersService(c), disruptionBudget(c)}
	if c.Spec.ProxyServer.Entrypoint.Type == v1alpha1.EntryPointTypeLoadBalancerService {
		apply = append(apply, loadBalancer(c, m))
	}
	if next := nextService(c); m.arrived {
		apply = append(apply, next)
	} else {
		remove = append(remove, next)
	}
	apply = append(apply, o.deployment(c, m))
	portForward := portForwardRBAC(c, clusters)
	if c.Spec.ProxyServer.Entrypoint.Type == v1alpha1.EntryPointTypePortForward {
		return append(apply, portForward...), remove
	}
	return apply, append(remove, portForward...)
}

func serverAccount(c *v1alpha1.ManagedProxyConfiguration) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: meta(c, serviceAccount)}
}

func service(c *v1alpha1.ManagedProxyConfiguration, m move) *corev1.Service {
	ports := c.Spec.Deploy.Ports
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(c, c.Spec.ProxyServer.InClusterServiceName),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: m.clients(),
			Ports: []corev1.ServicePort{
				{Name: "proxy-server", Protocol: corev1.ProtocolTCP, Port: identity.ProxyServerPort,
					TargetPort: targetPort("proxy-server", ports.ProxyServer, identity.ProxyServerPort)},
				{Name: "agent-server", Protocol: corev1.ProtocolTCP, Port: identity.AgentServerPort,
					TargetPort: targetPort("agent-server", ports.AgentServer, identity.AgentServerPort)},
			},
		},
	}
}

// targetPort is a number where it is upstream's: upstream's pods name no ports, and
// a Service must lead to them until they are replaced, and again after a rollback.
// Where it is not, it is the name, which leads to pods from before and after a
// change of spec.deploy.ports.
func targetPort(name string, port, upstreams int32) intstr.IntOrString {
	if port == upstreams {
		return intstr.FromInt32(port)
	}
	return intstr.FromString(name)
}

// peersService is how proxy servers find each other: a name for all their
// addresses, those of servers that start or drain included, and none of upstream's.
func peersService(c *v1alpha1.ManagedProxyConfiguration) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(c, c.Spec.ProxyServer.InClusterServiceName+PeersSuffix),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone, Selector: ownSelector(),
			PublishNotReadyAddresses: true,
			Ports:                    []corev1.ServicePort{{Name: "proxy-server", Protocol: corev1.ProtocolTCP, Port: c.Spec.Deploy.Ports.ProxyServer, TargetPort: intstr.FromString("proxy-server")}},
		},
	}
}

// nextService leads proxy APIs to the proxy servers of this release.
func nextService(c *v1alpha1.ManagedProxyConfiguration) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(c, c.Spec.ProxyServer.InClusterServiceName+nextSuffix),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: ownSelector(),
			Ports: []corev1.ServicePort{{Name: "proxy-server", Protocol: corev1.ProtocolTCP, Port: identity.ProxyServerPort, TargetPort: intstr.FromString("proxy-server")}},
		},
	}
}

// serverCount tells the proxy servers how many they are. It is not an argument of
// theirs: one server more would replace all of them, and cut connections that last
// longer than a drain.
func serverCount(c *v1alpha1.ManagedProxyConfiguration) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: meta(c, c.Name+countSuffix),
		Data:       map[string]string{countKey: strconv.Itoa(int(max(c.Spec.ProxyServer.Replicas, 1)))},
	}
}

// loadBalancer leads to the agent port alone: clients are on the hub.
func loadBalancer(c *v1alpha1.ManagedProxyConfiguration, m move) *corev1.Service {
	e := c.Spec.ProxyServer.Entrypoint
	lb := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta(c, e.LoadBalancerService.Name),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: m.agents(),
			Ports: []corev1.ServicePort{{Name: "agent-server", Protocol: corev1.ProtocolTCP, Port: e.Port, TargetPort: targetPort("agent-server", c.Spec.Deploy.Ports.AgentServer, identity.AgentServerPort)}},
		},
	}
	for _, annotation := range e.LoadBalancerService.Annotations {
		lb.Annotations[annotation.Key] = annotation.Value
	}
	return lb
}

func disruptionBudget(c *v1alpha1.ManagedProxyConfiguration) *policyv1.PodDisruptionBudget {
	one := intstr.FromInt32(1)
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: meta(c, c.Name+"-proxy-server"),
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: selector()}},
	}
}

// portForwardRBAC lets agents of clusters with the addon find the proxy servers' pods
// and port-forward to them through the hub's kube-apiserver. RBAC knows no labels and
// no ports, so it lets them see, and reach, every pod of the namespace; a
// ValidatingAdmissionPolicy of the chart refuses all pods but the proxy servers'. It
// names clusters one by one: an agent's credential may live for a year, and must not
// give any right once the cluster has no addon.
func portForwardRBAC(c *v1alpha1.ManagedProxyConfiguration, clusters []Cluster) []client.Object {
	var agents []rbacv1.Subject
	for _, cluster := range slices.SortedFunc(slices.Values(clusters), func(a, b Cluster) int { return cmp.Compare(a.Name, b.Name) }) {
		agents = append(agents, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: identity.AgentGroup(cluster.Name)})
		if cluster.Token {
			agents = append(agents, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: cluster.Name, Name: tokenAccount})
		}
	}
	return []client.Object{
		&rbacv1.Role{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
			ObjectMeta: meta(c, portForwardRole),
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
				{APIGroups: []string{""}, Resources: []string{"pods/portforward"}, Verbs: []string{"create"}},
			},
		},
		&rbacv1.RoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
			ObjectMeta: meta(c, portForwardRole),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: portForwardRole},
			Subjects:   agents,
		},
	}
}

func (o Options) deployment(c *v1alpha1.ManagedProxyConfiguration, m move) *appsv1.Deployment {
	none, one := intstr.FromInt32(0), intstr.FromInt32(1)
	container := o.container(c)
	d := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: meta(c, c.Name),
		Spec: appsv1.DeploymentSpec{
			Replicas:        ptr.To(c.Spec.ProxyServer.Replicas),
			MinReadySeconds: m.minReadySeconds(),
			Selector:        &metav1.LabelSelector{MatchLabels: selector()},
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &none, MaxSurge: &one},
			},
			Template: corev1.PodTemplateSpec{
				// No generation here: pods are replaced when something of theirs changes.
				ObjectMeta: metav1.ObjectMeta{Labels: ownSelector()},
				Spec: corev1.PodSpec{
					// The account may list clusters and their addons, and nothing else:
					// see proxyserver's "Who may do what".
					ServiceAccountName:            serviceAccount,
					AutomountServiceAccountToken:  ptr.To(true),
					ImagePullSecrets:              pullSecrets(c),
					NodeSelector:                  c.Spec.ProxyServer.NodePlacement.NodeSelector,
					Tolerations:                   c.Spec.ProxyServer.NodePlacement.Tolerations,
					TerminationGracePeriodSeconds: ptr.To(grace(container.Args)),
					SecurityContext:               &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
						spread(corev1.LabelHostname), spread(corev1.LabelTopologyZone),
					},
					Containers: []corev1.Container{container},
					Volumes:    volumes(c),
				},
			},
		},
	}
	o.Pods.apply(&d.Spec.Template)
	return d
}

func pullSecrets(c *v1alpha1.ManagedProxyConfiguration) []corev1.LocalObjectReference {
	var out []corev1.LocalObjectReference
	for _, name := range c.Spec.ProxyAgent.ImagePullSecrets {
		if name != "" {
			out = append(out, corev1.LocalObjectReference{Name: name})
		}
	}
	return out
}

func spread(topologyKey string) corev1.TopologySpreadConstraint {
	return corev1.TopologySpreadConstraint{
		MaxSkew: 1, TopologyKey: topologyKey, WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector: &metav1.LabelSelector{MatchLabels: selector()},
	}
}

// arguments are the proxy servers'.
func (o Options) arguments(c *v1alpha1.ManagedProxyConfiguration) []string {
	ports := c.Spec.Deploy.Ports
	args := []string{
		"proxy-server",
		"--server-count-file=/etc/proxy-servers/" + countKey,
		"--watch-managed-clusters",
		"--agent-install-namespace=" + o.AgentInstallNamespace,
		fmt.Sprintf("--server-port=%d", ports.ProxyServer),
		fmt.Sprintf("--agent-port=%d", ports.AgentServer),
		fmt.Sprintf("--health-port=%d", ports.HealthServer),
		fmt.Sprintf("--admin-port=%d", ports.AdminServer),
		"--server-cert=/etc/server-pki/tls.crt",
		"--server-key=/etc/server-pki/tls.key",
		"--server-ca-cert=/etc/server-ca-pki/ca.crt",
		"--cluster-cert=/etc/agent-pki/tls.crt",
		"--cluster-key=/etc/agent-pki/tls.key",
		"--cluster-ca-cert=/etc/agent-ca-pki/ca.crt",
		"--tls-profile=/etc/tls-profile",
		"--graceful-shutdown-timeout=600s",
		"--min-drain-duration=10s",
		fmt.Sprintf("--peers=%s%s.%s.svc:%d", c.Spec.ProxyServer.InClusterServiceName, PeersSuffix, c.Spec.ProxyServer.Namespace, ports.ProxyServer),
		fmt.Sprintf("--peer-server-name=%s.%s.svc", c.Spec.ProxyServer.InClusterServiceName, c.Spec.ProxyServer.Namespace),
	}
	if c.Spec.ProxyServer.Entrypoint.Type != v1alpha1.EntryPointTypePortForward { // in which agents reach the pods' ports
		args = append(args, "--cluster-metrics")
	}
	return append(args, c.Spec.ProxyServer.AdditionalArgs...)
}

func (o Options) container(c *v1alpha1.ManagedProxyConfiguration) corev1.Container {
	ports := c.Spec.Deploy.Ports
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("health")}},
			PeriodSeconds: 5, TimeoutSeconds: 3, FailureThreshold: 3,
		}
	}
	return corev1.Container{
		Name: componentName, Image: c.Spec.ProxyServer.Image, ImagePullPolicy: corev1.PullPolicy(o.ImagePullPolicy),
		Args: o.arguments(c),
		Ports: []corev1.ContainerPort{
			{Name: "proxy-server", ContainerPort: ports.ProxyServer, Protocol: corev1.ProtocolTCP},
			{Name: "agent-server", ContainerPort: ports.AgentServer, Protocol: corev1.ProtocolTCP},
			{Name: "health", ContainerPort: ports.HealthServer, Protocol: corev1.ProtocolTCP},
			{Name: "admin", ContainerPort: ports.AdminServer, Protocol: corev1.ProtocolTCP},
		},
		LivenessProbe: probe("/healthz"), ReadinessProbe: probe("/readyz"),
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), RunAsNonRoot: ptr.To(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "server-ca", MountPath: "/etc/server-ca-pki", ReadOnly: true},
			{Name: "server", MountPath: "/etc/server-pki", ReadOnly: true},
			{Name: "agent", MountPath: "/etc/agent-pki", ReadOnly: true},
			{Name: "agent-ca", MountPath: "/etc/agent-ca-pki", ReadOnly: true},
			{Name: "tls-profile", MountPath: "/etc/tls-profile", ReadOnly: true},
			{Name: "server-count", MountPath: "/etc/proxy-servers", ReadOnly: true},
		},
	}
}

func volumes(c *v1alpha1.ManagedProxyConfiguration) []corev1.Volume {
	secrets := c.Spec.Authentication.Dump.Secrets
	var out []corev1.Volume
	for _, v := range []struct{ name, secret string }{
		{"server-ca", certificates.HubBundleSecret},
		{"server", secrets.SigningProxyServerSecretName},
		{"agent", secrets.SigningAgentServerSecretName},
		{"agent-ca", certificates.AgentBundleSecret},
	} {
		out = append(out, corev1.Volume{Name: v.name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: v.secret}}})
	}
	return append(out, configMapVolume("tls-profile", identity.TLSProfile, true), configMapVolume("server-count", c.Name+countSuffix, false))
}

func configMapVolume(name, configMap string, optional bool) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: configMap}, Optional: ptr.To(optional),
	}}}
}
