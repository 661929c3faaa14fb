package proxyconfig

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

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
