package proxyconfig

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// errNoAddress says that the load balancer has no address yet.
var errNoAddress = errors.New("the load balancer has no address yet")

// AgentEntrypoint is what agents dial for a configuration. In PortForward mode
// that is the agent's own listener.
func AgentEntrypoint(ctx context.Context, c client.Reader, configuration *v1alpha1.ManagedProxyConfiguration) (host string, port int32, err error) {
	configuration = withDefaults(configuration)
	if err := check(configuration); err != nil {
		return "", 0, err
	}
	e := configuration.Spec.ProxyServer.Entrypoint
	switch e.Type {
	case v1alpha1.EntryPointTypeHostname:
		return e.Hostname.Value, e.Port, nil
	case v1alpha1.EntryPointTypeLoadBalancerService:
		address, err := loadBalancerAddress(ctx, c, configuration.Spec.ProxyServer.Namespace, e.LoadBalancerService.Name)
		return address, e.Port, err
	}
	return "127.0.0.1", e.Port, nil
}

func loadBalancerAddress(ctx context.Context, c client.Reader, namespace, name string) (string, error) {
	var service corev1.Service
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &service); err != nil {
		return "", fmt.Errorf("reading the load balancer's Service: %w", err)
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			return ingress.IP, nil
		}
		if ingress.Hostname != "" {
			return ingress.Hostname, nil
		}
	}
	return "", fmt.Errorf("reading the status of Service %q in namespace %q: %w", name, namespace, errNoAddress)
}
