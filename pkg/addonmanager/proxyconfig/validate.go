package proxyconfig

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// Normalize returns a configuration with its defaults, or an error that names the
// invalid field.
func Normalize(configuration *v1alpha1.ManagedProxyConfiguration) (*v1alpha1.ManagedProxyConfiguration, error) {
	configuration = withDefaults(configuration)
	return configuration, check(configuration)
}

// withDefaults sets the defaults that the API server would have set. Objects that
// were stored before a default existed lack it.
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
	number(&entrypoint.Port, identity.AgentServerPort)
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
	number(&ports.ProxyServer, identity.ProxyServerPort)
	number(&ports.AgentServer, identity.AgentServerPort)
	number(&ports.HealthServer, 8092)
	number(&ports.AdminServer, 8095)
	c.Spec.ProxyServer.AdditionalArgs, _ = proxyServerArgs(c)
	c.Spec.ProxyAgent.AdditionalArgs = canonicalArgs(c.Spec.ProxyAgent.AdditionalArgs)
	c.Spec.ProxyAgent.AdditionalServiceProxyArgs, _ = serviceProxyArgs(c)
	return c
}

// check reports the first invalid field. c has its defaults.
func check(c *v1alpha1.ManagedProxyConfiguration) error {
	spec := c.Spec
	if err := checkSigner(spec.Authentication.Signer); err != nil {
		return err
	}
	// In order: a message that changes without a reason would be written to the
	// status, which is a change of the object.
	names := append([]named{
		{"spec.proxyServer.namespace", spec.ProxyServer.Namespace},
		{"spec.proxyServer.inClusterServiceName", spec.ProxyServer.InClusterServiceName},
	}, slices.Concat(secretNames(c), providedNames(c))...)
	for _, n := range names {
		if problems := validation.IsDNS1123Subdomain(n.value); len(problems) > 0 {
			return fmt.Errorf("%s is %q: %s", n.field, n.value, strings.Join(problems, "; "))
		}
	}
	if spec.ProxyServer.Image == "" || spec.ProxyAgent.Image == "" {
		return fmt.Errorf("spec.proxyServer.image and spec.proxyAgent.image must be set")
	}
	if spec.ProxyServer.Replicas < 0 || spec.ProxyAgent.Replicas < 0 {
		return fmt.Errorf("spec.proxyServer.replicas is %d and spec.proxyAgent.replicas %d: neither may be negative", spec.ProxyServer.Replicas, spec.ProxyAgent.Replicas)
	}
	if err := checkPorts(spec.Deploy.Ports); err != nil {
		return err
	}
	if err := checkArgs("spec.proxyServer.additionalArgs", "proxy-server", spec.ProxyServer.AdditionalArgs); err != nil {
		return err
	}
	if err := checkArgs("spec.proxyAgent.additionalArgs", "proxy-agent", spec.ProxyAgent.AdditionalArgs); err != nil {
		return err
	}
	if err := checkServiceProxyArgs(spec.ProxyAgent.AdditionalServiceProxyArgs); err != nil {
		return err
	}
	if name := spec.ProxyAgent.AdditionalServiceCAConfigMap; name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("spec.proxyAgent.additionalServiceCAConfigMap is %q, which is not the name of a ConfigMap", name)
	}
	return checkEntrypoint(spec.ProxyServer.Entrypoint, spec.ProxyServer.InClusterServiceName)
}

func checkSigner(signer v1alpha1.ManagedProxyConfigurationCertificateSigner) error {
	const field = "spec.authentication.signer"
	switch signer.Type {
	case v1alpha1.SelfSigned:
		return nil
	case v1alpha1.CertManager:
		if signer.CertManager != nil && signer.CertManager.IssuerRef != nil && signer.CertManager.IssuerRef.Name == "" {
			return fmt.Errorf("%s.certManager.issuerRef.name is empty: it must be the name of an issuer, or issuerRef be left out", field)
		}
		return nil
	case v1alpha1.Provided:
		if signer.Provided == nil || signer.Provided.HubCASecretName == signer.Provided.AgentCASecretName {
			return fmt.Errorf("%s.provided must name two Secrets, one with the hub CA and one with the agent CA", field)
		}
		return nil
	}
	return fmt.Errorf("%s.type is %q: it must be SelfSigned, Provided or CertManager", field, signer.Type)
}

// providedNames are the Secrets with CAs that users provide.
func providedNames(c *v1alpha1.ManagedProxyConfiguration) []named {
	signer := c.Spec.Authentication.Signer
	if signer.Type != v1alpha1.Provided {
		return nil
	}
	const field = "spec.authentication.signer.provided."
	return []named{{field + "hubCASecretName", signer.Provided.HubCASecretName}, {field + "agentCASecretName", signer.Provided.AgentCASecretName}}
}

type named struct{ field, value string }

func secretNames(c *v1alpha1.ManagedProxyConfiguration) []named {
	const field = "spec.authentication.dump.secrets."
	secrets := c.Spec.Authentication.Dump.Secrets
	return []named{
		{field + "signingProxyServerSecretName", secrets.SigningProxyServerSecretName},
		{field + "signingAgentServerSecretName", secrets.SigningAgentServerSecretName},
		{field + "signingProxyClientSecretName", secrets.SigningProxyClientSecretName},
	}
}

// checkSecretNames keeps the Secrets of a configuration apart from each other
// and from those with names of their own. c has its defaults.
func checkSecretNames(c *v1alpha1.ManagedProxyConfiguration, signerName string) error {
	taken := []string{
		signerName, certificates.AgentSignerSecret, certificates.HubBundleSecret, certificates.AgentBundleSecret,
		certificates.APIClientSecret, certificates.UserServingSecret, certificates.IndexClientSecret, certificates.CertManagerHubCA, certificates.CertManagerAgentCA,
	}
	for _, n := range slices.Concat(secretNames(c), providedNames(c)) {
		if slices.Contains(taken, n.value) {
			return fmt.Errorf("%s is %q: it must be a name that no other Secret of the addon has; taken are %s", n.field, n.value, strings.Join(taken, ", "))
		}
		taken = append(taken, n.value)
	}
	return nil
}

// checkPorts repeats what the definition checks: objects that upstream has stored
// were never checked.
func checkPorts(ports v1alpha1.ManagedProxyConfigurationDeployPorts) error {
	all := []int32{ports.ProxyServer, ports.AgentServer, ports.HealthServer, ports.AdminServer}
	for i, port := range all {
		if port < 1024 || port > 49151 || slices.Contains(all[:i], port) {
			return fmt.Errorf("spec.deploy.ports are %d: they must be four different ports from 1024 to 49151", all)
		}
	}
	return nil
}

// reservedFlags decide which peers are trusted and what is reachable. They follow from
// the rest of the configuration and cannot be overridden.
var reservedFlags = []string{
	"--konnectivity-agents", "--agent-install-namespace", "--agent-identifiers", "--cluster-name",
	"--server-cert", "--server-key", "--server-ca-cert", "--cluster-cert", "--cluster-key", "--cluster-ca-cert",
	"--agent-cert", "--agent-key", "--ca-cert", "--hub-kubeconfig", "--kubeconfig",
	"--watch-managed-clusters", "--owner-policy", "--on-hub", "--extra-keys", "--exposed-services", "--peers", "--peer-server-name",
	// Services, probes and policies of the network lead to the ports.
	"--server-port", "--agent-port", "--health-port", "--admin-port", // spec.deploy.ports
	"--handler-port", "--health-server-port", "--admin-server-port",
	"--server-count-file",
}

// checkArgs refuses arguments that are no flags, flags that are reserved, and what the process
// does not start with.
func checkArgs(field, process string, args []string) error {
	set := flags.OfProcess(process)
	for i, arg := range args {
		flag, _, ok := strings.Cut(arg, "=")
		if !ok || !strings.HasPrefix(flag, "--") {
			return fmt.Errorf("%s[%d] is %q: it must be of the form --flag=value", field, i, arg)
		}
		if slices.Contains(reservedFlags, flag) {
			return fmt.Errorf("%s[%d] sets %s, which follows from the configuration and cannot be overridden: remove it", field, i, flag)
		}
		if set.Lookup(strings.TrimPrefix(flag, "--")) == nil {
			return fmt.Errorf("%s[%d] sets %s, which the %s of this release does not have: remove it", field, i, flag, process)
		}
		if err := set.Parse([]string{arg}); err != nil {
			return fmt.Errorf("%s[%d] is %q, with which the %s does not start: correct it: %w", field, i, arg, process, err)
		}
	}
	return nil
}

func checkEntrypoint(e *v1alpha1.ManagedProxyConfigurationProxyServerEntrypoint, inClusterServiceName string) error {
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
		if e.LoadBalancerService.Name == inClusterServiceName {
			return fmt.Errorf("%s.loadBalancerService.name is %q: it must differ from spec.proxyServer.inClusterServiceName", field, e.LoadBalancerService.Name)
		}
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

// serviceProxyFlags are those of upstream's service proxy that the agent has,
// with the same meaning, by the agent's names for them.
var serviceProxyFlags = []string{
	"--graceful-shutdown-timeout", "--min-drain-duration",
	"--oidc-issuer-url", "--oidc-client-id", "--oidc-username-claim", "--oidc-username-prefix", "--oidc-groups-claim",
	"--oidc-groups-prefix", "--oidc-reserved-name-prefixes", "--oidc-signing-algs", "--oidc-required-claim",
}

func checkServiceProxyArgs(args []string) error {
	const field = "spec.proxyAgent.additionalServiceProxyArgs"
	for i, arg := range args {
		if flag, _, _ := strings.Cut(arg, "="); !slices.Contains(serviceProxyFlags, flag) {
			return fmt.Errorf("%s[%d] sets %s, which the agent, upstream's service proxy of today, does not have: it has %s", field, i, flag, strings.Join(serviceProxyFlags, ", "))
		}
	}
	return checkArgs(field, "proxy-agent", args)
}
