package proxyconfig

import (
	"cmp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

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
