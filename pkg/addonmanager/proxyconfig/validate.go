package proxyconfig

import (
	"fmt"
	"net"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// withDefaults fills what the API server would have filled. Objects that were
// stored before a default existed come without it.
func withDefaults(c *v1alpha1.ManagedProxyConfiguration) *v1alpha1.ManagedProxyConfiguration {
	c = c.DeepCopy()
	text := func(s *string, value string) {
		if *s == "" {
			*s = value
		}
	}
	number := func(n *int32, value int32) {
		if *n == 0 {
			*n = value
		}
	}
	text(&c.Spec.ProxyServer.InClusterServiceName, "proxy-entrypoint")
	text(&c.Spec.ProxyServer.Namespace, "open-cluster-management-cluster-proxy")
	secrets := &c.Spec.Authentication.Dump.Secrets
	text(&secrets.SigningProxyServerSecretName, "proxy-server")
	text(&secrets.SigningProxyClientSecretName, "proxy-client")
	text(&secrets.SigningAgentServerSecretName, "agent-server")
	if c.Spec.Authentication.Signer.Type == "" {
		c.Spec.Authentication.Signer.Type = v1alpha1.SelfSigned
	}
	if c.Spec.ProxyServer.Entrypoint == nil {
		c.Spec.ProxyServer.Entrypoint = &v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint{Type: v1alpha1.EntryPointTypePortForward}
	}
	entrypoint := c.Spec.ProxyServer.Entrypoint
	number(&entrypoint.Port, 8091)
	if entrypoint.Type == v1alpha1.EntryPointTypeLoadBalancerService {
		if entrypoint.LoadBalancerService == nil {
			entrypoint.LoadBalancerService = &v1alpha1.EntryPointLoadBalancerService{}
		}
		text(&entrypoint.LoadBalancerService.Name, "proxy-agent-entrypoint")
	}
	if c.Spec.Deploy == nil {
		c.Spec.Deploy = &v1alpha1.ManagedProxyConfigurationDeploy{}
	}
	ports := &c.Spec.Deploy.Ports
	number(&ports.ProxyServer, 8090)
	number(&ports.AgentServer, 8091)
	number(&ports.HealthServer, 8092)
	number(&ports.AdminServer, 8095)
	return c
}

// check reports the first thing that cannot be had. c has its defaults.
func check(c *v1alpha1.ManagedProxyConfiguration) error {
	spec := c.Spec
	if signer := spec.Authentication.Signer.Type; signer != v1alpha1.SelfSigned {
		return fmt.Errorf("spec.authentication.signer.type is %q, which is not supported yet: it must be SelfSigned", signer)
	}
	for field, name := range map[string]string{
		"spec.proxyServer.namespace":                                    spec.ProxyServer.Namespace,
		"spec.proxyServer.inClusterServiceName":                         spec.ProxyServer.InClusterServiceName,
		"spec.authentication.dump.secrets.signingProxyServerSecretName": spec.Authentication.Dump.Secrets.SigningProxyServerSecretName,
		"spec.authentication.dump.secrets.signingProxyClientSecretName": spec.Authentication.Dump.Secrets.SigningProxyClientSecretName,
		"spec.authentication.dump.secrets.signingAgentServerSecretName": spec.Authentication.Dump.Secrets.SigningAgentServerSecretName,
	} {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return fmt.Errorf("%s is %q: %s", field, name, strings.Join(problems, "; "))
		}
	}
	if spec.ProxyServer.Image == "" || spec.ProxyAgent.Image == "" {
		return fmt.Errorf("spec.proxyServer.image and spec.proxyAgent.image must be set")
	}
	for i, arg := range append(spec.ProxyServer.AdditionalArgs[:len(spec.ProxyServer.AdditionalArgs):len(spec.ProxyServer.AdditionalArgs)], spec.ProxyAgent.AdditionalArgs...) {
		if !strings.HasPrefix(arg, "--") {
			return fmt.Errorf("additional argument %d is %q: it must be of the form --flag=value", i, arg)
		}
	}
	if len(spec.ProxyAgent.AdditionalServiceProxyArgs) > 0 {
		return fmt.Errorf("spec.proxyAgent.additionalServiceProxyArgs is set: there is no service proxy any more, use spec.proxyAgent.additionalArgs")
	}
	if spec.ProxyAgent.AdditionalServiceCAConfigMap != "" {
		return fmt.Errorf("spec.proxyAgent.additionalServiceCAConfigMap is set, which is not supported yet: it must be empty")
	}
	return checkEntrypoint(spec.ProxyServer.Entrypoint)
}

func checkEntrypoint(e *v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint) error {
	const field = "spec.proxyServer.entrypoint"
	if e.Port < 1 || e.Port > 65535 {
		return fmt.Errorf("%s.port is %d: it must be 1 to 65535", field, e.Port)
	}
	switch e.Type {
	case v1alpha1.EntryPointTypePortForward:
		return nil
	case v1alpha1.EntryPointTypeHostname:
		if e.Hostname == nil || e.Hostname.Value == "" {
			return fmt.Errorf("%s.hostname.value is empty: with type Hostname it must be a DNS name or an IP address", field)
		}
		if net.ParseIP(e.Hostname.Value) == nil && len(validation.IsDNS1123Subdomain(e.Hostname.Value)) > 0 {
			return fmt.Errorf("%s.hostname.value is %q: it must be a DNS name or an IP address, without a port", field, e.Hostname.Value)
		}
		return nil
	case v1alpha1.EntryPointTypeLoadBalancerService:
		if problems := validation.IsDNS1035Label(e.LoadBalancerService.Name); len(problems) > 0 {
			return fmt.Errorf("%s.loadBalancerService.name is %q: %s", field, e.LoadBalancerService.Name, strings.Join(problems, "; "))
		}
		for _, annotation := range e.LoadBalancerService.Annotations {
			if problems := validation.IsQualifiedName(annotation.Key); len(problems) > 0 {
				return fmt.Errorf("%s.loadBalancerService.annotations has key %q: %s", field, annotation.Key, strings.Join(problems, "; "))
			}
		}
		return nil
	}
	return fmt.Errorf("%s.type is %q: it must be Hostname, LoadBalancerService or PortForward", field, e.Type)
}
